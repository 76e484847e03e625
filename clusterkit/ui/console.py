"""The two consoles: results go to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console

from clusterkit.errors import ClusterkitError

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)


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
