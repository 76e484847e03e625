"""Splits the output of `ck_run` into what each command said. Pure.

One output may hold the answers about many runs. Each section stands alone: its name, its text, its exit
status and its errors lie between our marks, so nothing of one section is ever read as part of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MARK = "\x1eclusterkit-slurm"
"""Begins our own lines in the output; no banner of a login shell holds it."""


@dataclass(frozen=True)
class Section:
    """What one command said."""

    name: str
    text: str = ""
    """Standard output."""
    status: int = 1
    error: str = ""
    """Standard error, without blanks at the ends."""


def sections(output: str) -> Iterator[Section]:
    """The sections that are whole, in order; one without its status line was cut short and is left out."""
    opened: tuple[str, str] | None = None
    for head, whole, body in _pieces(output):
        kind, _, rest = head.partition(" ")
        if kind == "begin" and whole:
            opened = rest, body
            continue
        if kind == "status" and whole and opened is not None and rest.isdecimal() and rest.isascii():
            yield Section(*opened, status=int(rest[:9]), error=body.strip())
        opened = None


def marked(output: str, word: str) -> str | None:
    """The rest of our first line that begins with a word; None without such a line."""
    for head, _, _ in _pieces(output):
        kind, _, rest = head.partition(" ")
        if kind == word:
            return rest
    return None


def _pieces(output: str) -> Iterator[tuple[str, bool, str]]:
    """Each of our lines, whether it came to its end, and the text up to the next one."""
    for chunk in output.replace("\r\n", "\n").split(f"{MARK} ")[1:]:
        head, newline, body = chunk.partition("\n")
        yield head, bool(newline), body
