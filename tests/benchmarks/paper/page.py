"""Parts of docs/paper.md that are made: text between two marks, and pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.files import atomic_write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = Path(__file__).parents[3] / "docs" / "paper.md"
PICTURES = PAGE.parent / "pictures"
STYLE = {"svg.fonttype": "none", "font.size": 9}
"""For `matplotlib.rc_context`, with a `svg.hashsalt` of its own: the same figure is the same file then."""


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a part."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def part(name: str) -> str:
    """Returns a part as the page has it."""
    begin, end = marks(name)
    return PAGE.read_text().partition(begin)[2].partition(end)[0].strip()


def rewrite(name: str, text: str) -> None:
    """Replaces a part of the page."""
    begin, end = marks(name)
    before, _, rest = PAGE.read_text().partition(begin)
    atomic_write_bytes(PAGE, f"{before}{begin}\n\n{text.strip()}\n\n{end}{rest.partition(end)[2]}".encode())


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table whose first column is of words and the others of numbers."""
    above, *lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [above, "|---" + "|---:" * (len(head) - 1) + "|", *lines]


def save(figure: Figure, picture: Path) -> None:
    """Writes a figure as SVG, within the `rc_context` that it was drawn in."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    # a tenth of a point is finer than the eye
    short = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", text.getvalue())
    atomic_write_bytes(picture, short.encode())
