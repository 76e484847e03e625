"""Prints the ids of the living jobs of a job script: `python -m clusterkit.backends.local.find SCRIPT`."""

from __future__ import annotations

import subprocess
import sys

from clusterkit.backends.local.processes import job_id, job_of


def find(script: str) -> list[str]:
    """Ids of the jobs whose supervisor runs this job script, or whose job.sh has outlived it.

    Args:
        script: absolute path, as the job was started.
    """
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,pgid=,args="],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    ).stdout
    found = []
    for line in listing.splitlines():
        pid, group, command = line.split(maxsplit=2)
        if command == f"bash -p {script}":
            found.append(job_of(int(pid)))
        elif (
            pid == group
            and "clusterkit.backends.local.supervisor" in command
            and command.endswith(f" {script}")
        ):
            found.append(job_id(int(pid)))
    return list(dict.fromkeys(identifier for identifier in found if identifier is not None))


if __name__ == "__main__":
    print("\n".join(find(sys.argv[1])))  # noqa: T201 - the answer, read by parse_find
