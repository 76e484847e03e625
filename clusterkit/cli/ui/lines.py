"""Lines that several commands print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from clusterkit.cli.ui import console

NAMES = 12
"""Width of the names, in columns."""


def labelled(name: str, text: str, to: Console, style: str = "") -> None:
    """Prints a named line; on a terminal, long text wraps below its own start."""
    whole = Text(text, style)
    room = max(to.width - NAMES, NAMES)
    for place, part in enumerate(whole.wrap(to, room) if to.is_terminal else [whole]):
        to.print(Text.assemble((f"{'' if place else name:<{NAMES}}", "bold"), part), soft_wrap=True)


def warn_of_trusted(trusted: Sequence[str]) -> None:
    """Prints one line, or nothing without such users."""
    if trusted:
        more = f" (and {len(trusted) - 1} more)" if len(trusted) > 1 else ""
        lead = ("others could run code as you there", "yellow")
        console.err.print(
            Text.assemble(lead, f", whom the settings trust: {trusted[0]}{more}"), soft_wrap=True
        )
