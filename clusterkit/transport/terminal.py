"""This process's terminal and streams, as those of a command that runs elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import NoReturn

from clusterkit.errors import TransportError
from clusterkit.transport.link import CHUNK, Screen
from clusterkit.transport.session import Session

_IN, _OUT, _ERR = 0, 1, 2
_RESIZED, _ENDED = b"r", b"e"
_SIZE = (80, 24)
"""Where a terminal does not tell its size."""


def require_terminal() -> None:
    """Raises TransportError where standard input or output is no terminal."""
    if not (os.isatty(_IN) and os.isatty(_OUT)):
        raise TransportError(
            "this needs a terminal",
            hint="run the command in a terminal, without redirecting its input or output",
        )


@contextlib.contextmanager
def raw_terminal() -> Iterator[Screen]:
    """The terminal, raw for the time being: every key passes as it is.

    Raises:
        TransportError: there is none.
    """
    require_terminal()
    before = termios.tcgetattr(_IN)
    previous = signal.signal(signal.SIGTERM, _leave)
    try:
        yield screen()
    finally:
        termios.tcsetattr(_IN, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, previous)


def screen() -> Screen:
    """Returns the terminal as it is now."""
    try:
        columns, rows = os.get_terminal_size(_OUT)
    except OSError:
        columns, rows = 0, 0
    return Screen(os.environ.get("TERM") or "dumb", columns or _SIZE[0], rows or _SIZE[1])


def show_on_terminal(session: Session) -> int:
    """Pass keys, sizes and output until the command has ended; returns its exit status. Needs `raw_terminal`.

    Raises:
        TransportError: as `Session.wait`.
    """
    news, wake = os.pipe()
    shower = threading.Thread(target=_show_all, args=(session, wake), daemon=True)
    # A handler must not send by itself: it may have interrupted this very thread while it sends.
    previous = signal.signal(signal.SIGWINCH, lambda *_: _write(wake, _RESIZED))
    try:
        tty.setraw(_IN, termios.TCSADRAIN)
        shower.start()
        _pass_keys(session, news)
        return session.wait()
    except BaseException:
        session.end()
        raise
    finally:
        signal.signal(signal.SIGWINCH, previous)
        if shower.ident is not None:
            shower.join()
        os.close(news)
        os.close(wake)


def show_output(session: Session, *, hold_input: bool) -> int:
    """Pass a command's output and errors on until it has ended; returns its exit status.

    Args:
        session: the command; its standard error goes to `write_error`.
        hold_input: keep its standard input open meanwhile.

    Raises:
        TransportError: as `Session.wait`.
    """
    try:
        if not hold_input:
            session.end_input()
        for data in session.output():
            _write(_OUT, data)
        return session.wait()
    except BaseException:
        session.end()
        raise


@contextlib.contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Leaves Ctrl-C and its like to the command that shares our terminal.

    Handlers that do nothing, unlike ignored signals, are not inherited.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def write_error(data: bytes) -> None:
    """Writes to standard error."""
    _write(_ERR, data)


def _pass_keys(session: Session, news: int) -> None:
    """Sends what is typed, and new sizes, until the output has ended."""
    while True:
        ready, _, _ = select.select([_IN, news], [], [])
        if news in ready:
            happened = os.read(news, CHUNK)
            if _ENDED in happened:
                return
            session.resize(screen())
        if _IN in ready:
            keys = os.read(_IN, CHUNK)
            if not keys:
                sys.exit(128 + signal.SIGHUP)  # the terminal is gone
            with contextlib.suppress(OSError):  # the command has ended; the output says so next
                session.send(keys)


def _show_all(session: Session, wake: int) -> None:
    try:
        with contextlib.suppress(TransportError):  # `Session.wait` raises it again
            for data in session.output():
                _write(_OUT, data)
    finally:
        _write(wake, _ENDED)


def _write(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]


def _leave(*_: object) -> NoReturn:
    """On SIGTERM: end by an exception, so that the terminal is set right."""
    sys.exit(128 + signal.SIGTERM)
