"""Prints the ids of the living jobs of a job script: `python -m clusterkit.backends.local.find SCRIPT`."""

from __future__ import annotations

import sys

from clusterkit.backends.local.processes import commands, job_id, job_of


def find(script: str) -> list[str]:
    """Returns ids of the jobs whose supervisor runs this job script, or whose job.sh has outlived it.

    Args:
        script: absolute path, as the job was started.
    """
    identifiers = []
    for pid, (group, command) in commands().items():
        if command == f"bash -p {script}":
            identifiers.append(job_of(pid))
        elif (
            pid == group
            and "clusterkit.backends.local.supervisor" in command
            and command.endswith(f" {script}")
        ):
            identifiers.append(job_id(pid))
    return list(dict.fromkeys(identifier for identifier in identifiers if identifier))


if __name__ == "__main__":
    print("\n".join(find(sys.argv[1])))  # noqa: T201 - the answer, read by parse_find
