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
from collections.abc import Iterable, Sequence
from pathlib import Path

JOB_ID = re.compile(r"(?P<pid>[1-9][0-9]*)-(?P<token>[0-9A-Za-z]+)")
"""`<pid>-<start time>`: the start time distinguishes the job from a later process with the same pid."""
MARK = "CLUSTERKIT_JOB_ID"
"""The environment variable that holds the job id in all processes of a job; it is empty in their leader."""
_MARK = f"{MARK}=".encode()


def start_token(pid: int, *, zombie: bool = False) -> str | None:
    """Returns when a process started, in the kernel's unit; None if it is gone or a zombie.

    Linux: field 22 of /proc/<pid>/stat (clock ticks since boot; man 5 proc). Elsewhere: `ps -o lstart`.

    Args:
        pid: its number.
        zombie: whether a process that has ended and was not waited for has one, too (Linux only).
    """
    if _has_proc():
        fields = _stat(pid)
        return fields[19] if fields and (zombie or fields[0] not in "ZX") else None
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env=_c_locale()
    )
    return re.sub(r"[\s:]", "", answer.stdout) or None


def job_id(pid: int, *, zombie: bool = False) -> str | None:
    """Returns the job id of a living process; arguments as of `start_token`."""
    token = start_token(pid, zombie=zombie)
    return None if token is None else f"{pid}-{token}"


def living_pid(identifier: str) -> int | None:
    """Returns the pid of a job's living leader; None for one that is gone or an invalid id."""
    match = JOB_ID.fullmatch(identifier)
    if match is None or start_token(int(match["pid"])) != match["token"]:
        return None
    return int(match["pid"])


def is_living(identifier: str) -> bool:
    """Returns whether any process of a job lives: its supervisor, or what a killed one has left."""
    return living_pid(identifier) is not None or bool(family(identifier))


def family(identifier: str) -> set[int]:
    """Returns the pids of a job's living processes without its leader."""
    return set(_members(identifier))


def roots(identifier: str) -> set[int]:
    """Returns those of a family whose parent is not in it: its leader's children, or what that has left."""
    members = _members(identifier)
    return {pid for pid, parent in members.items() if parent not in members}


def job_of(pid: int) -> str | None:
    """Returns the job of a process by its environment (Linux only); None for none, empty in a leader."""
    with contextlib.suppress(OSError):  # it has ended, or hides
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        values = [text[len(_MARK) :] for text in variables if text.startswith(_MARK)]
        return values[0].decode(errors="replace") if values else None
    return None


def commands() -> dict[int, tuple[int, str]]:
    """Process group and command line, its words joined by blanks, of each living process."""
    if not _has_proc():
        argv = ["ps", "-A", "-ww", "-o", "pid=,pgid=,args="]
        answer = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=True).stdout
        rows = (line.split(maxsplit=2) for line in answer.splitlines())
        return {int(pid): (int(group), command) for pid, group, command in rows}
    listing = {}
    for pid, (_, group, _) in _processes().items():
        with contextlib.suppress(OSError):  # it has ended, or hides
            words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            listing[pid] = group, os.fsdecode(b" ".join(words))
    return listing


def _members(identifier: str) -> dict[int, int]:
    """Returns the family's pids with those of their parents.

    They are the processes that carry the job's id in their environment, those of the leader's session or
    process group, and all their descendants but for the jobs that these have started. The kernel gives the
    number of a session or group that has a process to no other. After the leader's end a session of its
    number is the job's if one in it carries the job's id; where environments cannot be read, the group is.
    """
    match = JOB_ID.fullmatch(identifier)
    if match is None:
        return {}
    leader, table = int(match["pid"]), _processes()
    jobs = {pid: job_of(pid) for pid in table}
    members = {pid for pid, job in jobs.items() if job == identifier}
    led = start_token(leader) == match["token"]
    if led or any(leader in table[pid][1:] for pid in members) or not (_has_proc() or leader in table):
        members |= {pid for pid, (_, *groups) in table.items() if leader in groups}
    members |= {leader} if led else set()
    own = {pid for pid, job in jobs.items() if job in (None, identifier)}
    while more := {pid for pid in own - members if table[pid][0] in members}:
        members |= more
    return {pid: table[pid][0] for pid in members - {leader, os.getpid()}}


def _processes() -> dict[int, tuple[int, int, int]]:
    """Returns each living process's parent, group, session; the group twice without session numbers."""
    if not _has_proc():
        listing = subprocess.Popen(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE, text=True, env=_c_locale()
        )
        rows = [line.split() for line in listing.communicate()[0].splitlines()]
        alive = [[int(row[0]), int(row[1]), int(row[2])] for row in rows if not row[3].startswith("Z")]
        return {pid: (parent, group, group) for pid, parent, group in alive if pid != listing.pid}
    table = {}
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        if (fields := _stat(pid)) and fields[0] not in "ZX":
            table[pid] = (int(fields[1]), int(fields[2]), int(fields[3]))
    return table


def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/<pid>/stat (man 5 proc) from the third, the state; empty if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(") ")[2].split()  # the name, field 2, may itself hold blanks and brackets


def adopt_orphans() -> None:
    """Becomes the parent of orphaned descendants, so that `family` still finds them (Linux only).

    A program's own daemons then end with the job, as they do in Slurm's cgroups.
    """
    if not sys.platform.startswith("linux"):
        return
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def reap_orphans(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Lets adopted processes that have ended go (Linux only): else they are zombies until the job ends.

    Args:
        children: those that this process has started, which learn their own exit codes.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ChildProcessError):  # no child is left
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            started = next((child for child in children if child.pid == ended.si_pid), None)
            if started is not None:
                started.poll()
            else:
                os.waitpid(ended.si_pid, 0)


def send(pids: Iterable[int], *numbers: signal.Signals) -> None:
    """Sends signals to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or no longer ours
            for number in numbers:
                os.kill(pid, number)


def kill_family(identifier: str, *, patience: float = 2.0) -> None:
    """Sends SIGKILL to a job's processes except its leader, repeatedly until none is left.

    Args:
        identifier: job id.
        patience: seconds after which to stop trying; a process in uninterruptible sleep cannot be killed.
    """
    end = time.monotonic() + patience
    while (targets := family(identifier)) and time.monotonic() < end:
        send(targets, signal.SIGKILL)
        time.sleep(0.02)


def _c_locale() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}
