"""The two consoles: results go to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

from clusterkit.errors import ClusterkitError

_PIPED_WIDTH = 220
"""Columns where there is no terminal: wide enough that no table is cut for the program that reads it."""


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH


out = Console(highlight=False, width=_width(sys.stdout))
err = Console(stderr=True, highlight=False, width=_width(sys.stderr))


def show_error(error: ClusterkitError) -> None:
    """One line for the cause and one for the next step."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(error.cause, markup=False, soft_wrap=True)
    if error.hint:
        err.print("[bold]next:[/]", end="  ")
        err.print(error.hint, markup=False, soft_wrap=True)


def note(message: str) -> None:
    """A line about what is being done."""
    err.print(message, markup=False, style="dim", soft_wrap=True)
