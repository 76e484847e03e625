"""Runs clusterkit and ends it with SIGKILL just before one of the calls that touch the world.

    python -m tests.doubles.kill_point POINT submit ...         kill before call number POINT, if there is one
    python -m tests.doubles.kill_point FIRST:STRIDE submit ...  one command after the other, killed at FIRST,
        FIRST + STRIDE and so on, until one comes to its end; prints how many were killed. The words may say
        {kill}: how many were killed before, in two digits
    python -m tests.doubles.kill_point INT@POINT,POINT submit ...   Ctrl-C before these calls; 0 is the first

Calls are those into C that write, send, rename, start a process or run SQL, in every thread. They count from
the one on that writes the intent into the ledger: before it there is no run. What only fills or reads a
buffer of this process touches nothing: a kill there is the same as one at the call that comes next.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import NoReturn

from clusterkit.runs.ledger import Ledger, LedgerRun
from tests import forking

CALLS = frozenset(
    {
        "_fork_exec", "close", "commit", "connect", "execute", "executemany", "executescript", "fork_exec",
        "fsync", "mkdir", "posix_spawn", "recv", "rename", "replace", "select", "send", "sendall", "unlink",
        "waitpid", "write",
    }
)  # fmt: skip
IN_MEMORY = io.BytesIO | io.StringIO | io.TextIOWrapper | io.BufferedReader
"""Of these no call counts: a text that is written is flushed by another one."""


class Counter:
    """Counts the calls and kills at one of them."""

    def __init__(self, points: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
        self.points, self.number = points, number
        self.count = 0
        self.armed = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """A profile function (sys.setprofile)."""
        if event != "c_call":
            return
        name = getattr(argument, "__name__", "")
        self.armed = self.armed or name == "executemany"
        if self.armed and name in CALLS and not isinstance(getattr(argument, "__self__", None), IN_MEMORY):
            self.count += 1
            if self.count in self.points:
                os.kill(os.getpid(), self.number)


def run_killed(*points: int, number: signal.Signals = signal.SIGKILL) -> NoReturn:
    """Run the command line in this process, which ends."""
    counter = Counter(points, number)
    threading.setprofile(counter)
    write_intent = Ledger.add_all

    def counted(ledger: Ledger, runs: Iterable[LedgerRun]) -> None:
        if 0 in points and not counter.armed:
            os.kill(os.getpid(), number)
        sys.setprofile(counter)  # which slows down all that comes
        write_intent(ledger, runs)

    Ledger.add_all = counted  # type: ignore[method-assign]
    forking.run_and_leave("clusterkit")


def killed_in_turn(first: int, stride: int) -> int:
    """Each is forked from this process; the exit code is that of the one that came to its end."""
    forking.import_all("clusterkit")
    kills, words = 0, sys.argv[1:]
    while (code := _forked(first + kills * stride, words, kills)) == -signal.SIGKILL:
        kills += 1
    print(kills)
    return code


def _forked(point: int, words: Sequence[str], kills: int) -> int:
    child = os.fork()
    if child == 0:
        sys.argv[1:] = [word.replace("{kill}", f"{kills:02}") for word in words]
        run_killed(point)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    word = sys.argv.pop(1)
    if word.startswith("INT@"):
        run_killed(*map(int, word[4:].split(",")), number=signal.SIGINT)
    first, _, stride = word.partition(":")
    if stride:
        sys.exit(killed_in_turn(int(first), int(stride)))
    run_killed(int(first))


if __name__ == "__main__":
    main()
