"""The two consoles: results go to standard output, everything else to standard error.

They are made, and rich imported, when something is printed that needs them: `out` and `err` are here all the
same, by PEP 562. Plain lines go by `say`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from clusterkit.errors import ClusterkitError

if TYPE_CHECKING:
    from rich.console import Console

    out: Console
    err: Console


_PIPED_WIDTH = 220
"""Columns where there is no terminal: wide enough that no table is cut for the program that reads it."""


_UNTAMED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def __getattr__(name: str) -> Console:
    if name not in ("out", "err"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _console(stderr=name == "err")
    return made


def _console(*, stderr: bool) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class TamedConsole(Console):
        """Run directories and clusters are not trusted to leave the terminal as it is: see `tamed`."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else tamed(text), style, control)

    width = _width(sys.stderr if stderr else sys.stdout)
    return TamedConsole(stderr=stderr, highlight=False, width=width)


def tamed(text: str) -> str:
    """Text that moves no cursor and can be written: control characters and halves of pairs become `?`."""
    return text if text.isprintable() else _UNTAMED.sub("?", text)


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH


def say(line: str) -> None:
    """A line of results, to the letter."""
    sys.stdout.write(f"{line}\n")


def bold(text: str) -> str:
    """Text for `say` that stands out on a terminal."""
    plain = not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def show_error(error: ClusterkitError) -> None:
    """One line for the cause and one for the next step."""
    from clusterkit.cli.ui.console import err

    err.print("[bold red]error:[/]", end=" ")
    err.print(error.cause, markup=False, soft_wrap=True)
    if error.hint:
        err.print("[bold]next:[/]", end="  ")
        err.print(error.hint, markup=False, soft_wrap=True)


def note(message: str) -> None:
    """A line about what is being done."""
    from clusterkit.cli.ui.console import err

    err.print(message, markup=False, style="dim", soft_wrap=True)


def format_count(count: float) -> str:
    """A count of steps, e.g. "2M", "256k", "1.25M"."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= factor:
            return f"{count / factor:.2f}".rstrip("0").rstrip(".") + unit
    return f"{count:.0f}"


def printable(name: str) -> str:
    r"""A file name on one line, whatever is in it: control characters and what is no Unicode are escaped.

    >>> printable("new\nline")
    'new\\nline'
    """
    return name if name.isprintable() else name.encode("unicode_escape", "surrogatepass").decode("ascii")
