"""Runs clusterkit and ends it with SIGKILL just before one of the calls that touch the world.

    python -m tests.doubles.kill_point POINT submit ...      kill before call number POINT, if there is one

Calls are those into C that write, send, rename, start a process or run SQL, in every thread. They count from
the one on that writes the intent into the ledger: before it there is no run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

CALLS = frozenset(
    {
        "_fork_exec", "close", "commit", "connect", "execute", "executemany", "executescript", "fetchone",
        "fork_exec", "fsync", "mkdir", "posix_spawn", "recv", "rename", "replace", "select", "send",
        "sendall", "unlink", "waitpid", "write",
    }
)  # fmt: skip


class Counter:
    """Counts the calls and kills at one of them."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.count = 0
        self.armed = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """A profile function (sys.setprofile)."""
        if event != "c_call":
            return
        name = getattr(argument, "__name__", "")
        self.armed = self.armed or name == "executemany"
        if self.armed and name in CALLS:
            self.count += 1
            if self.count == self.point:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    counter = Counter(int(sys.argv[1]))
    sys.argv = ["clusterkit", *sys.argv[2:]]
    from clusterkit.cli.app import main as clusterkit

    threading.setprofile(counter)
    sys.setprofile(counter)
    clusterkit()


if __name__ == "__main__":
    main()
