"""Interrupts environments of the learner's own process that do not come back, as nobody else would."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class OverdueError(BaseException):
    """It has taken too long. Not an `Exception`, for environments may catch those and go on."""


def set_alarm(seconds: float) -> bool:
    """Has `OverdueError` raised here after so long, and again after as long, until `clear_alarm`.

    Waiting and Python's own code are interrupted; a loop within a library's is not, before it returns.

    Returns:
        Whether it is set: not outside the main thread, nor where the process has other use for SIGALRM.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return False
    if signal.getsignal(signal.SIGALRM) is not _ring:
        if signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
            return False
        signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    return True


def clear_alarm() -> None:
    """Calls off what `set_alarm` has set."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise OverdueError
