"""Ctrl-C: holds it back while an answer is under way, and says what the command has changed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from clusterkit.terminal import tamed

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class InterruptedChange(NamedTuple):
    """What came of a change that was interrupted."""

    words: str
    hint: str = ""
    """The next command."""


UNCHANGED = {
    **dict.fromkeys(
        ("run", "submit", "resume", "rerun", "search", "tune", "rehearse", "demo", "dev"),
        "nothing was submitted",
    ),
    "cancel": "nothing was cancelled",
    "deploy": "what was sent stays, and the next `clusterkit deploy` sends the rest",
    "build": "no image was made",
    "storage": "what was not removed yet is still there",
}
"""Command -> what is true if no part of it tells more."""
_tellers: list[Callable[[], InterruptedChange | None]] = []
_holds: list[bool] = []
"""Whether Ctrl-C came, for the hold under way."""


def tell(outcome: Callable[[], InterruptedChange | None]) -> None:
    """Adds something that knows what came of this command's changes, and is asked if Ctrl-C ends it.

    Args:
        outcome: called after Ctrl-C, and at any moment after a second one; returns None for nothing to tell.
    """
    if outcome not in _tellers:
        _tellers.append(outcome)


def words(command: str | None = None) -> str:
    """Returns the lines that say what came of the interrupted command; empty if it changes nothing.

    Args:
        command: the command; None for the one in sys.argv.
    """
    changes = [change for teller in _tellers if (change := _asked(teller))]
    if not _tellers:
        command = command or next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        changes = [InterruptedChange(UNCHANGED[command])] if command in UNCHANGED else []
    lines = [f"interrupted; {change.words}" for change in changes]
    lines += [f"next:  {change.hint}" for change in changes if change.hint]
    return "".join(f"{line}\n" for line in lines)


def catch() -> None:
    """Lets the first Ctrl-C raise KeyboardInterrupt, and the second one end the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job's shell ignores it
        signal.signal(signal.SIGINT, _interrupt)


@contextmanager
def held_back() -> Iterator[None]:
    """Holds Ctrl-C back until the block ends, because an answer is under way that tells what happened.

    A second one ends the process at once.

    Raises:
        KeyboardInterrupt: at the end of the outermost such block, if Ctrl-C came.
    """
    before = signal.getsignal(signal.SIGINT)
    if _holds or before is not _interrupt or threading.current_thread() is not threading.main_thread():
        yield
        return
    _holds.append(False)
    signal.signal(signal.SIGINT, _hold)
    try:
        yield
    finally:
        if _holds.pop():
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, before)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, _end)
    raise KeyboardInterrupt


def _hold(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGINT, _end)
    _holds[-1] = True
    _write("\ninterrupted: waiting for the answer; Ctrl-C again ends this at once\n")


def _end(_number: int, _frame: object) -> NoReturn:
    _write(f"\n{words()}")
    os._exit(INTERRUPTED)


def _write(text: str) -> None:
    """Writes to standard error, whatever else is being written there."""
    with suppress(OSError):
        os.write(2, tamed(text).encode(errors="replace"))


def _asked(teller: Callable[[], InterruptedChange | None]) -> InterruptedChange | None:
    try:
        return teller()
    except Exception as error:
        return InterruptedChange(f"what came of it is not known: {error}", "`clusterkit status` tells")
