"""Draws a curve in characters: each terminal cell holds two by four braille dots. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLANK = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot, by column and by row from the top of a cell."""


def plot(
    points: Sequence[tuple[float, float]],
    *,
    width: int,
    height: int,
    across: tuple[float, float],
    up: tuple[float, float],
) -> list[str]:
    """Returns the lines of the plot, top line first.

    Points that share a column of dots are averaged; columns are joined by lines.

    Args:
        points: pairs of x and y, ordered by x, within the ranges.
        width: the plot's width in cells.
        height: the plot's height in cells.
        across: the range of x.
        up: the range of y.
    """
    columns: dict[int, list[float]] = {}
    for x, y in points:
        columns.setdefault(_place(x, across, 2 * width), []).append(y)
    dots = [(x, _place(math.fsum(ys) / len(ys), up, 4 * height)) for x, ys in sorted(columns.items())]
    cells = [[_BLANK] * width for _ in range(height)]
    for (x0, y0), (x1, y1) in zip(dots[:1] + dots, dots, strict=False):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x, y = x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps)
            row = 4 * height - 1 - y
            cells[row // 4][x // 2] |= _BITS[x % 2][row % 4]
    # Some fonts draw the empty braille cell as eight circles.
    return ["".join(" " if cell == _BLANK else chr(cell) for cell in line) for line in cells]


def _place(value: float, span: tuple[float, float], dots: int) -> int:
    """Maps a value to a dot, with 0 at the low end."""
    low, high = span
    share = (value - low) / (high - low) if high > low else 0.5
    return min(dots - 1, max(0, round(share * (dots - 1))))
