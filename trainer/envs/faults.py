"""Faults of a user's environment: exceptions, described with the lines of its code, and calls that hang.

An alarm interrupts environments in the learner's own process that hang: no other process watches them.
"""

from __future__ import annotations

import signal
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_OURS = Path(__file__).resolve().parents[1]


class Fault(NamedTuple):
    """The description of an exception.

    Attributes:
        cause: its type and the first line of its text; one line.
        where: the lines of the environment's own code that led to it, then the whole text.
    """

    cause: str
    where: str


def fault_of(error: BaseException) -> Fault:
    """Describes an exception that an environment raised.

    The frames of the trainer that led to the environment's are left out: they are not at fault.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = list(frames)
    while theirs and _OURS in Path(theirs[0].filename).resolve().parents:
        theirs.pop(0)
    words = traceback.format_exception_only(error)
    plain = traceback.TracebackException(type(error), error, None)
    plain.__notes__ = None  # they would come last
    cause = list(plain.format_exception_only())[-1].strip().splitlines()[0]
    if isinstance(error, SystemExit):
        cause = f"it called sys.exit({error.code!r})"
        words = [f"{cause}\n"]
    return Fault(cause, "".join([*traceback.format_list(theirs or frames), *words]).rstrip())


PIECES = 4
"""A time limit is counted in this many pieces, and time in which the process is stopped counts as one at
most: a job that Slurm suspends, or a run stopped by Ctrl-Z, is not overdue as soon as it continues."""

_rung = 0


class OverdueError(BaseException):
    """An environment takes too long. Not an `Exception`: environments may catch those and carry on."""


def set_alarm(seconds: float) -> bool:
    """Raises `OverdueError` in this thread after the given time, repeatedly, until `clear_alarm`.

    Time in which the process is stopped counts as one piece at most.

    Waiting and Python's own code are interrupted; a loop within a library's is not, before it returns.

    Returns:
        Whether it is set: never outside the main thread, nor when the process already uses SIGALRM.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return False
    if signal.getsignal(signal.SIGALRM) is not _ring:
        if signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
            return False
        signal.signal(signal.SIGALRM, _ring)
    global _rung
    _rung = 0
    signal.setitimer(signal.ITIMER_REAL, seconds / PIECES, seconds / PIECES)
    return True


def clear_alarm() -> None:
    """Cancels the alarm of `set_alarm`."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _ring(_number: int, _frame: FrameType | None) -> None:
    global _rung
    _rung += 1
    if _rung % PIECES == 0:
        raise OverdueError
