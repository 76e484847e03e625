"""Lines and tables that several commands print."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import out

if TYPE_CHECKING:
    from clusterkit.search.summary import Best

NAMES = 12
"""Width of the names, in columns."""


def labelled(name: str, text: str, style: str = "") -> None:
    """Prints a named line; on a terminal, long text wraps below its own start."""
    whole = Text(text, style)
    room = max(out.width - NAMES, NAMES)
    for place, part in enumerate(whole.wrap(out, room) if out.is_terminal else [whole]):
        out.print(Text.assemble((f"{'' if place else name:<{NAMES}}", "bold"), part), soft_wrap=True)


def share_bar(share: float, width: int, style: str = "green") -> Text:
    """Draws a bar whose filled and empty parts differ without colours, too; `share` is from 0 to 1."""
    filled = round(share * width)
    return Text.assemble(("━" * filled, style), ("╌" * (width - filled), "grey50"))


def plain_table(
    *headings: str,
    right: Collection[str] = (),
    fold: Collection[str] = (),
    padding: tuple[int, int] | tuple[int, int, int, int] = (0, 2, 0, 0),
) -> Table:
    """Builds a table without rules: bold headings over columns that keep each text on one line.

    A table of runs wraps its texts where there is too little room: an id of a run is of no use in part.

    Args:
        headings: one per column, from left to right.
        right: headings of right-aligned columns.
        fold: headings of columns whose texts may take several lines.
        padding: spaces around each cell, as rich counts them.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=padding)
    for heading in headings:
        wraps = heading in fold or "run" in headings
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
        )
    return table


def best_line(best: Best) -> str:
    """Returns one line about the best trial of a search."""
    from clusterkit.search.space import short  # imports much, and few commands print this

    values = ", ".join(f"{name}={short(text)}" for name, text in best.values.items())
    return f"best of {best.search}: {best.run_id}, {best.metric} {best.value:.4g} with {values}"
