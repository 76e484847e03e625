"""Cleans up after a test cluster when the process that runs the tests ends, however it ends.

Started as a process of its own, in its own session, before anything else of the cluster. It reads one JSON
list a line for each thing there will be to clean, and acts at the end of its input. The kernel closes the
pipe of a process that was killed, so SIGKILL is no different from an orderly end:

    ["process", pid, start time]    kill it and its children, if it still is that process
    ["cgroup", path]                remove the group and all below it
    ["link", name]                  delete the network link
    ["mount", path]                 unmount it, if it is mounted
    ["tree", path]                  delete the folder

Only the standard library, so that it can be run by path with `python -I`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 30.0
ORDER = ("process", "cgroup", "link", "mount", "tree")
"""Processes hold everything else, and a folder what is mounted in it."""


def start_time(pid: int) -> str | None:
    """When a process began, in the kernel's ticks: together with the pid it names one process for ever.

    None when there is no such process, or when only its exit status is left of it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def kill(pid: int, began: str) -> None:
    """Kill a node's outer process and its child, the first process inside; the rest goes with it."""
    if start_time(pid) != began:
        return
    family = {each: start_time(each) for each in (pid, *_children(pid))}
    for each in family:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _until(
        f"process {pid}",
        lambda: not any(began and start_time(each) == began for each, began in family.items()),
    )


def remove_cgroup(top: Path) -> None:
    """Remove a group and the groups in it; the kernel refuses while a process is still leaving."""

    def removed() -> bool:
        try:
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()
        except OSError:
            return False
        return True

    _until(f"control group {top}", removed)


def remove_link(name: str) -> None:
    subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL)
    _until(f"link {name}", lambda: not Path("/sys/class/net", name).exists())


def clean(duties: list[list[object]]) -> None:
    """Do what was asked for, in `ORDER`."""
    for kind, what, *more in sorted(duties, key=lambda duty: ORDER.index(str(duty[0]))):
        if kind == "process":
            kill(int(str(what)), str(more[0]))
        elif kind == "cgroup":
            remove_cgroup(Path(str(what)))
        elif kind == "link":
            remove_link(str(what))
        elif kind == "mount":
            subprocess.run(["umount", "-l", str(what)], stderr=subprocess.DEVNULL)
        else:
            shutil.rmtree(str(what), ignore_errors=True)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _until(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"{what} of the test cluster is still there")
        time.sleep(0.01)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    clean([json.loads(line) for line in sys.stdin])


if __name__ == "__main__":
    main()
