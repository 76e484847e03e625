"""A contact sheet: one picture of many episodes, a row each, a few moments in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.video import Caption

_CELL, _BAR, _GAP = 176, 20, 4
"""Pixels: width and height of a moment, height of the bar over a row, space between."""
_ROWS = 10
"""More rows than these go on in a block at the right."""
_GREEN, _GREY, _INK, _PAPER = (40, 150, 60), (90, 90, 90), (255, 255, 255), (255, 255, 255)


class SheetEpisode:
    """The frames of one episode as they are filmed; only as many as may be needed are kept."""

    _MOST = 64

    def __init__(self) -> None:
        self._frames: list[tuple[Any, str]] = []
        self._every, self._seen = 1, 0

    def add(self, frame: npt.NDArray[np.uint8], caption: Caption) -> None:
        """Takes a frame of shape (height, width, 3)."""
        from PIL import Image

        if self._seen % self._every == 0:
            self._frames.append((Image.fromarray(frame).resize((_CELL, _CELL)), caption.right))
            if len(self._frames) > self._MOST:
                self._frames = self._frames[::2]
                self._every *= 2
        self._last = (frame, caption.right)
        self._seen += 1

    def moments(self, count: int) -> list[tuple[Any, str]]:
        """Returns `count` pictures and what stands at them, evenly spread from the first to the last."""
        from PIL import Image

        frames = list(self._frames)
        if frames[-1][1] != self._last[1]:
            frames.append((Image.fromarray(self._last[0]).resize((_CELL, _CELL)), self._last[1]))
        places = np.linspace(0, len(frames) - 1, count).round().astype(int)
        return [frames[place] for place in places]


class ContactSheet:
    """Collects rows and draws them.

    Args:
        rows: how many there will be at most.
    """

    def __init__(self, rows: int) -> None:
        self._moments = 5 if rows <= _ROWS else 3
        self._rows: list[tuple[str, bool, list[tuple[Any, str]]]] = []

    def add(self, title: str, good: bool, episode: SheetEpisode) -> None:
        """Adds a row; its bar is green when it is good."""
        self._rows.append((title, good, episode.moments(self._moments)))

    def save(self, path: Path) -> None:
        """Writes a PNG.

        Raises:
            OSError: it cannot be written.
        """
        from PIL import Image, ImageDraw

        blocks = -(-len(self._rows) // _ROWS)
        height = -(-len(self._rows) // blocks)
        wide, tall = self._moments * (_CELL + _GAP), _BAR + _CELL + 2 * _GAP
        sheet = Image.new("RGB", (blocks * (wide + _GAP) + _GAP, height * tall + _GAP), _PAPER)
        draw = ImageDraw.Draw(sheet)
        for number, (title, good, moments) in enumerate(self._rows):
            left = _GAP + number // height * (wide + _GAP)
            top = _GAP + number % height * tall
            draw.rectangle(
                (left, top, left + wide - _GAP - 1, top + _BAR - 1), fill=_GREEN if good else _GREY
            )
            draw.text((left + 6, top + 4), title, fill=_INK)
            for place, (picture, label) in enumerate(moments):
                x, y = left + place * (_CELL + _GAP), top + _BAR
                sheet.paste(picture, (x, y))
                width = draw.textlength(label) + 8
                draw.rectangle((x, y + _CELL - 16, x + width, y + _CELL - 1), fill=_GREY)
                draw.text((x + 4, y + _CELL - 14), label, fill=_INK)
        sheet.save(path)
