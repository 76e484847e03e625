"""Processes of local jobs: which one a job id means, whether it lives, and which belong to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

JOB_ID = re.compile(r"(?P<pid>[1-9][0-9]*)-(?P<token>[0-9A-Za-z]+)")
"""`<pid>-<start time>`: the start time distinguishes the job from a later process with the same pid."""


def start_token(pid: int) -> str | None:
    """When a process started, in the kernel's unit; None if it is gone or a zombie.

    Linux: field 22 of /proc/<pid>/stat (clock ticks since boot; man 5 proc). Elsewhere: `ps -o lstart`.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(") ")[2].split()  # the name, field 2, may itself hold blanks and brackets
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env=_c_locale()
    )
    return re.sub(r"[\s:]", "", answer.stdout) or None


def job_id(pid: int) -> str | None:
    """The job id of a living process."""
    token = start_token(pid)
    return None if token is None else f"{pid}-{token}"


def living_pid(identifier: str) -> int | None:
    """The pid of a living job; None for one that is gone or an invalid id."""
    match = JOB_ID.fullmatch(identifier)
    if match is None or start_token(int(match["pid"])) != match["token"]:
        return None
    return int(match["pid"])


def family(leader: int) -> set[int]:
    """The pids of a job without its leader: its process group and all descendants in any group."""
    listing = subprocess.Popen(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE, text=True, env=_c_locale()
    )
    rows = [line.split() for line in listing.communicate()[0].splitlines()]
    alive = [(int(row[0]), int(row[1]), int(row[2])) for row in rows if not row[3].startswith("Z")]
    members = {leader} | {pid for pid, _, group in alive if group == leader}
    while more := {pid for pid, parent, _ in alive if parent in members} - members:
        members |= more
    return members - {leader, os.getpid(), listing.pid}


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that `family` still finds them (Linux only).

    A program's own daemons then end with the job, as they do in Slurm's cgroups.
    """
    if not sys.platform.startswith("linux"):
        return
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or no longer ours
            os.kill(pid, signal.SIGKILL)


def kill_family(leader: int, *, patience: float = 2.0) -> None:
    """Send SIGKILL to a job's processes except its leader, repeatedly until none is left.

    Args:
        leader: pid of the job's group leader.
        patience: seconds after which to stop trying; a process in uninterruptible sleep cannot be killed.
    """
    end = time.monotonic() + patience
    while (targets := family(leader)) and time.monotonic() < end:
        kill(targets)
        time.sleep(0.02)


def _c_locale() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}
