"""Starts a job on this machine and returns at once: `python -m clusterkit.local.start SCRIPT RUN_DIR`.

Prints the job id. The job runs in a session of its own with its output in RUN_DIR/slurm.log, so it
survives the end of the caller and of its terminal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from clusterkit.local.processes import job_id


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Unknown options go to the supervisor, which checks them."""
    parser = argparse.ArgumentParser(prog="clusterkit.local.start")
    parser.add_argument("script")
    parser.add_argument("run_dir")
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="SIGTERM then, SIGKILL after a grace"
    )
    parser.add_argument("--notice", metavar="NAME@SECONDS", help="send this signal so long before the limit")
    parser.add_argument("--grace", type=float, metavar="SECONDS", help="between SIGTERM and SIGKILL")
    parser.add_argument("--requeue", action="store_true", help="start it again when it asks for that")
    options = parser.parse_args(arguments)
    if shutil.which("bash") is None:
        parser.exit(1, "bash is not on PATH; job scripts need it\n")
    if not Path(options.script).is_file():
        parser.exit(1, f"the job script {options.script} does not exist\n")
    # -P: the run directory, our new working directory, must not shadow modules.
    command = [sys.executable, "-P", "-m", "clusterkit.local.supervisor"]
    for name in ("time_limit", "notice", "grace"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    if options.requeue:
        command.append("--requeue")
    try:
        log = os.open(Path(options.run_dir, "slurm.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        parser.exit(1, f"cannot write to {options.run_dir}: {error.strerror}\n")
    supervisor = subprocess.Popen(
        [*command, options.script],
        cwd=options.run_dir,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    # A job that has ended already is a zombie of ours until we exit: its pid is still its own.
    print(job_id(supervisor.pid) or f"{supervisor.pid}-ended")  # noqa: T201 - the answer, read by parse_submit
    supervisor.returncode = 0  # it outlives us on purpose; Popen would warn about that
    return 0


if __name__ == "__main__":
    sys.exit(main())
