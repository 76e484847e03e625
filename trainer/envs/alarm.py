"""Interrupts environments in the learner's own process that hang: no other process watches them."""

from __future__ import annotations

import signal
import threading
from types import FrameType

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
