"""Waits for other jobs of this machine, or for a job's turn, then becomes its supervisor.

`python -m clusterkit.backends.local.wait --run-dir RUN_DIR [--after KIND:JOB_ID:RUN_DIR]...
[--group FOLDER --slot LIMIT:TASK:FD] -- COMMAND...`. The pid, and so the job id, stays the same; the command
line distinguishes a waiting job from a running one. The kernel releases locks when their process ends.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from clusterkit.backends.local.processes import is_living, job_id
from clusterkit.untrusted import RECORD_BYTES, ordinal, parse_object, read_limited

SLOTS = "slots"
"""Folder of the locks, in the group's folder."""
_SECONDS = 0.5


def turn_file(folder: Path, task: int) -> Path:
    """Returns the file that a task locks until it starts; the next task waits for it."""
    return folder / SLOTS / f"turn-{task}"


def wait_for(kind: str, parent: str, run_dir: Path) -> str | None:
    """Waits until a job has ended.

    Args:
        kind: `ok` if it must complete, else `any`.
        parent: its job id.
        run_dir: its run directory.

    Returns:
        Why the waiting job must not start; None when it may.
    """
    while is_living(parent):
        time.sleep(_SECONDS)
    if kind == "any" or _completed(run_dir):
        return None
    return f"it was to start after {run_dir.name} completed, which it did not"


def take_slot(folder: Path, limit: int, task: int, turn: int) -> None:
    """Waits for earlier tasks, then for one of `limit` slots, which is held until the process ends.

    Args:
        folder: the group's.
        limit: most tasks that run at a time.
        task: number of this task in the group.
        turn: file descriptor of this task's own turn file, locked.
    """
    before = turn_file(folder, task - 1)
    if before.exists():
        with before.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    while not any(_lock(folder / SLOTS / f"slot-{number}") for number in range(limit)):
        time.sleep(_SECONDS)
    os.close(turn)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line: becomes the command, or exits with 1 if it must not start."""
    parser = argparse.ArgumentParser(prog="clusterkit.backends.local.wait")
    parser.add_argument("--after", action="append", default=[], metavar="KIND:JOB_ID:RUN_DIR")
    parser.add_argument("--slot", metavar="LIMIT:TASK:FD")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--group", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    for text in options.after:
        kind, parent, run_dir = text.split(":", 2)
        if why := wait_for(kind, parent, Path(run_dir)):
            _give_up(options.run_dir, why)
            raise SystemExit(1)
    if options.slot:
        limit, task, turn = map(int, options.slot.split(":"))
        if options.after:  # so that the command line says what it waits for now
            slot = ["--group", str(options.group), "--run-dir", str(options.run_dir), "--slot", options.slot]
            _become(
                [sys.executable, "-P", "-m", "clusterkit.backends.local.wait", *slot, "--", *options.command]
            )
        take_slot(options.group, limit, task, turn)
    _become(options.command)


def _become(command: Sequence[str]) -> NoReturn:
    os.execv(command[0], list(command))  # noqa: S606 - no shell on purpose


def _completed(run_dir: Path) -> bool:
    numbers = [ordinal(path.name) or 0 for path in run_dir.glob("attempts/*")]
    path = run_dir / "attempts" / str(max(numbers, default=0)) / "exit.json"
    record = parse_object(read_limited(path, RECORD_BYTES) or b"")
    return record is not None and record.get("why") == "completed"


def _lock(path: Path) -> bool:
    """Locks a file for the life of this process, across exec; False if another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)
    return True


def _give_up(run_dir: Path, why: str) -> None:
    """Writes the record of a cancelled run: it ended without a start."""
    folder = run_dir / "attempts" / "0"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {"requested": int(time.time()), "job_id": job_id(os.getpid()), "detail": why}
    (folder / ".cancel.tmp").write_text(json.dumps(record), encoding="utf-8")
    (folder / ".cancel.tmp").replace(folder / "cancel.json")
    print(f"[clusterkit] not started: {why}", flush=True)  # noqa: T201 - goes to slurm.log


if __name__ == "__main__":
    main()
