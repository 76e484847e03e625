"""Starts jobs on this machine and returns: `python -m clusterkit.backends.local.start SCRIPT RUN_DIR`.

Prints the job id. The job runs in a session of its own with its output in RUN_DIR, so it
survives the end of the caller and of its terminal.

With `--array FIRST-LAST[%LIMIT]` RUN_DIR is a group's folder: each task is a separate job for the run
directory on its line of `members`, and prints a line `TASK JOB_ID`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.backends.local.processes import MARK, job_id

_ARRAY = re.compile(r"(\d+)-(\d+)(?:%(\d+))?")
_OF_A_JOB = re.compile(
    r"(SLURM|SLURMD|SBATCH|SRUN|PBS|LSB|FLUX|PALS|PMI|PMI2|PMIX|PRTE|HYDI|MV2_COMM_WORLD|OMPI_COMM"
    r"|OMPI_UNIVERSE|OMPI_MCA_ess|OMPI_MCA_orte|TORCHELASTIC|PET|CLUSTERKIT)_.*|MPI_LOCAL(RANKID|NRANKS)"
    r"|((LOCAL|GROUP|ROLE|NODE)_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|ROLE_NAME|NNODES|MASTER_(ADDR|PORT)"
)
"""Variables by which a scheduler, an MPI launcher, torchrun or clusterkit tells a job's processes who they
are. What the outer job may use, such as CUDA_VISIBLE_DEVICES, is not among them."""
_OF_THE_SITE = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "PBS_CONF_FILE", "PBS_EXEC"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Unknown options go to the supervisor, which checks them."""
    parser = argparse.ArgumentParser(prog="clusterkit.backends.local.start")
    parser.add_argument("script")
    parser.add_argument("run_dir")
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="SIGTERM then, SIGKILL after a grace"
    )
    parser.add_argument("--notice", metavar="NAME@SECONDS", help="send this signal so long before the limit")
    parser.add_argument("--grace", type=float, metavar="SECONDS", help="between SIGTERM and SIGKILL")
    parser.add_argument("--requeue", action="store_true", help="start it again when it requests that")
    parser.add_argument("--after", action="append", default=[], metavar="KIND:JOB_ID:RUN_DIR")
    parser.add_argument("--after-task", action="append", default=[], metavar="TASK:KIND:JOB_ID:RUN_DIR")
    parser.add_argument("--array", metavar="FIRST-LAST[%LIMIT]")
    options = parser.parse_args(arguments)
    if shutil.which("bash") is None:
        parser.exit(1, "bash is not on PATH; job scripts need it\n")
    if not Path(options.script).is_file():
        parser.exit(1, f"the job script {options.script} does not exist\n")
    # -P: the run directory, our new working directory, must not shadow modules.
    command = [sys.executable, "-P", "-m", "clusterkit.backends.local.supervisor"]
    for name in ("time_limit", "notice", "grace"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    if options.requeue:
        command.append("--requeue")
    try:
        if options.array:
            _start_array(options, command)
        else:
            started = _start(command, Path(options.run_dir), Path(options.script), after=options.after)
            print(started)  # noqa: T201 - the answer, read by parse_submit
    except OSError as error:
        parser.exit(1, f"cannot write to {options.run_dir}: {error.strerror}\n")
    return 0


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables of a job that this process may itself be part of.

    A program would take them for its own job's: for one rank of several, with another job's id and limits.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _OF_THE_SITE or not _OF_A_JOB.fullmatch(name)
    }


def _start_array(options: argparse.Namespace, command: Sequence[str]) -> None:
    from clusterkit.backends.local.wait import SLOTS  # a single job needs none of it

    match = _ARRAY.fullmatch(options.array)
    if match is None:
        raise SystemExit(f"{options.array} is not a range of tasks")
    folder = Path(options.run_dir)
    (folder / SLOTS).mkdir(mode=0o700, exist_ok=True)
    members = (folder / "members").read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    own = [text.partition(":")[::2] for text in options.after_task]
    for task in range(int(match[1]), int(match[2]) + 1):
        run_dir = Path(members[task])
        after = [*options.after, *(text for number, text in own if int(number) == task)]
        slot = (folder, int(match[3]), task) if match[3] else None
        started = _start(command, run_dir, run_dir / "job.sh", after=after, slot=slot)
        print(task, started, flush=True)  # noqa: T201 - the answer, read by accepted_task


def _start(
    command: Sequence[str],
    run_dir: Path,
    script: Path,
    *,
    after: Sequence[str] = (),
    slot: tuple[Path, int, int] | None = None,
) -> str:
    """Starts one job, possibly after others; returns its id.

    Args:
        command: the supervisor's argv without the script.
        run_dir: the run directory.
        script: its job.sh.
        after: jobs that must end first, as `clusterkit.backends.local.wait` takes them.
        slot: the group's folder, the most tasks that run at a time, and this task's number.
    """
    argv = [*command, str(script)]
    turn: list[int] = []
    if after or slot:
        wait = [*(f"--after={text}" for text in after), "--run-dir", str(run_dir)]
        if slot:
            from clusterkit.backends.local.wait import turn_file

            turn.append(os.open(turn_file(slot[0], slot[2]), os.O_RDWR | os.O_CREAT, 0o600))
            fcntl.flock(turn[0], fcntl.LOCK_EX)
            wait += ["--group", str(slot[0]), "--slot", f"{slot[1]}:{slot[2]}:{turn[0]}"]
        argv = [sys.executable, "-P", "-m", "clusterkit.backends.local.wait", *wait, "--", *argv]
    log = os.open(run_dir / SCHEDULER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    job = subprocess.Popen(
        argv,
        cwd=run_dir,
        env={**own_environment(os.environ), MARK: ""},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=turn,
    )
    for descriptor in (log, *turn):
        os.close(descriptor)
    job.returncode = 0  # it outlives us on purpose; Popen would warn about that
    # A job that has ended already is a zombie of ours until we exit: its pid is still its own.
    return job_id(job.pid, zombie=True) or f"{job.pid}-ended"


if __name__ == "__main__":
    sys.exit(main())
