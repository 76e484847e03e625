"""Named lines, such as `time   about 2h`."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

NAMES = 12
"""Columns of the names."""


def labelled(name: str, text: str, to: Console, style: str = "") -> None:
    """Print a named line; on a terminal it goes on below its own beginning."""
    whole = Text(text, style)
    room = max(to.width - NAMES, NAMES)
    for place, part in enumerate(whole.wrap(to, room) if to.is_terminal else [whole]):
        to.print(Text.assemble((f"{'' if place else name:<{NAMES}}", "bold"), part), soft_wrap=True)
