"""Makes the three standard streams work in any state a shell passes on, and accept any printed text.

At a terminal, what is written to `sys.stdout` and `sys.stderr` cannot control it, whoever wrote it; what may,
because it is clusterkit's own or filtered already, is written to `unfiltered(stream)`.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import IO, Any

from clusterkit.errors import ClusterkitError
from clusterkit.terminal import TerminalFilter, plain_output

READER_GONE = 141
"""Exit code when the reader of standard output has exited; programs killed by SIGPIPE have the same code."""
_DEGRADE = "clusterkit.degrade"
_PLAIN = {"━": "=", "╌": ".", "─": "-", "●": "o", "│": "|", "┤": "|", "→": ">", "…": "."} | dict(
    zip("▁▂▃▄▅▆▇█", "__--==##", strict=True)
)
"""Substitutes for clusterkit's symbols when the encoding lacks them; equally wide, to keep tables aligned."""
_BRAILLE = range(0x2800, 0x2900)


class OutputError(ClusterkitError):
    """Standard output cannot be written; with `READER_GONE`, the error is not reported."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"standard output cannot be written: {error.strerror}",
            hint="free some space or send the output elsewhere; the command itself may have succeeded",
        )
        if isinstance(error, BrokenPipeError):
            self.exit_code = READER_GONE


class _GuardedStream(io.FileIO):
    """A stream that fails at most once, so that the flush when Python exits cannot fail again."""

    def __init__(self, number: int, *, needed: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self._needed = needed

    def write(self, data: object) -> int | None:  # type: ignore[override]
        """Writes bytes.

        Raises:
            OutputError: the bytes cannot be written, and the stream is needed.
        """
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if not self._needed:
                return len(data)  # type: ignore[arg-type]
            self._needed = False
            raise OutputError(error) from None


class _TerminalStream(io.TextIOWrapper):
    """A terminal's stream that leaves out everything that controls the terminal."""

    def write(self, text: str) -> int:
        """Writes text; colours and what moves within the line stay."""
        super().write(plain_output(text))
        return len(text)


class _Unfiltered:
    """Writes to a terminal's stream as it is given."""

    def __init__(self, stream: _TerminalStream) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text unchanged."""
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def unfiltered(stream: IO[str]) -> IO[str]:
    """Returns a stream that passes on what controls a terminal, in the same order as the given one."""
    return _Unfiltered(stream) if isinstance(stream, _TerminalStream) else stream  # type: ignore[return-value]


class LogPrinter:
    """Prints a program's output: filtered at a terminal, byte for byte otherwise.

    Args:
        raw: byte for byte at a terminal, too.
    """

    def __init__(self, *, raw: bool = False) -> None:
        self._stream = unfiltered(sys.stdout)
        self._filter = TerminalFilter() if sys.stdout.isatty() and not raw else None

    def print(self, data: bytes) -> None:
        """Prints the next bytes."""
        if self._filter:
            self._stream.write(self._filter.feed(data))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def end(self) -> None:
        """Ends the output, or interrupts it with other text."""
        if self._filter:
            self._stream.write(self._filter.end())
        sys.stdout.flush()


def prepare() -> None:
    """Replaces the standard streams with ones that accept any text.

    A closed stream behaves like /dev/null. Characters that the encoding lacks are replaced. Standard error is
    only informative: if it cannot be written, the command continues.
    """
    codecs.register_error(_DEGRADE, _degrade)
    if sys.stdin is None:
        sys.stdin = open(_nothing(0), encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    sys.stdout = _text(sys.stdout, 1, needed=True)
    sys.stderr = _text(sys.stderr, 2, needed=False)


def _nothing(number: int) -> int:
    """Opens /dev/null in place of a closed stream; child processes inherit it."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)
        os.close(opened)
    return number


def _text(stream: object, number: int, *, needed: bool) -> io.TextIOWrapper:
    old = stream if isinstance(stream, io.TextIOWrapper) else None
    raw = _GuardedStream(old.fileno() if old else _nothing(number), needed=needed)
    kind = _TerminalStream if raw.isatty() else io.TextIOWrapper
    return kind(
        io.BufferedWriter(raw),
        encoding=old.encoding if old else "utf-8",
        errors=_DEGRADE,
        line_buffering=not needed or raw.isatty(),
    )


def _degrade(error: UnicodeError) -> tuple[str, int]:
    """Replaces characters that cannot be encoded; an error handler for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(map(_plain, text)), error.end


def _plain(character: str) -> str:
    if ord(character) in _BRAILLE:  # dots of a curve
        return " " if ord(character) == _BRAILLE.start else "*"
    return _PLAIN.get(character, "?")
