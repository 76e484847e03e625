"""Logs as JSON: bounded, and without anything that a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clusterkit.cli.ui.console import printable

LINE = 2_000
"""Characters of a line that are printed; the rest is left out."""
WHOLE = 256_000
"""Characters of one run's log that are printed; earlier lines are left out."""


@dataclass(frozen=True)
class LogText:
    """The end of a log."""

    lines: list[str]
    """Without line ends; control characters and invalid Unicode are escaped."""
    cut: bool
    """Whether lines, or ends of lines, are missing because the text was too long."""


def bounded(chunks: Iterable[bytes]) -> LogText:
    """Returns the last lines of a log, as many as fit."""
    kept: list[str] = []
    size, cut = 0, False
    for line, whole in lines_of(chunks):
        kept.append(line)
        size += len(line)
        cut = cut or not whole
        while size > WHOLE:
            size -= len(kept.pop(0))
            cut = True
    return LogText(kept, cut)


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    """Yields each line as text, and whether it is whole; a line without an end is the last one."""
    rest = b""
    for chunk in chunks:
        *ended, rest = (rest + chunk).split(b"\n")
        rest = rest[: 4 * LINE + 1]  # a line without an end takes no more memory than that
        yield from map(_line, ended)
    if rest:
        yield _line(rest)


def _line(line: bytes) -> tuple[str, bool]:
    text = line[: 4 * LINE].decode("utf-8", "replace").rstrip("\r")
    return printable(text[:LINE]), len(text) <= LINE and len(line) <= 4 * LINE
