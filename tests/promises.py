"""The table of docs/promises.md: each promise, and the tests that each command proves it by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent.parent / "docs" / "promises.md"


class Promise(NamedTuple):
    """A row of the page; it names tests by their files, functions or, with parameters, ids."""

    words: str
    here: list[str]
    """By `make test`."""
    there: list[str]
    """By `make test-cluster`."""


def promises() -> list[Promise]:
    """Returns the rows of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = (re.split(r" \|(?: |$)", line) for line in lines if "`tests/" in line)
    return [
        Promise(words, *(re.findall(r"`(tests/[^`]+)`", cell) for cell in cells)) for words, *cells in rows
    ]
