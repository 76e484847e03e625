"""Reads CSV files, with or without a header: progress.csv, monitor.csv, metrics.csv, or any with steps."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace

from clusterkit.results.logs.format import MOST_COLUMNS, TextFormat, UnreadableLogError, row_of, step_name
from clusterkit.results.metrics import MetricRow
from clusterkit.untrusted import number, parse_object

_NAMES = re.compile(
    r"progress|monitor|metric|log|history|train|eval|result|curve|loss|reward|return|score", re.IGNORECASE
)
"""Names of files that hold metrics even if no column has the name of steps: then rows are counted."""
_NUMBER = re.compile(r"[-+]?(\d{1,40}\.?\d{0,40}|\.\d{1,40})([eE][-+]?\d{1,4})?|[-+]?(nan|inf(inity)?)", re.I)
_QUOTED = re.compile(r'"[^"]*"')
_MONITOR = ["r", "l", "t"]
"""First columns of Gym's and Stable-Baselines3's Monitor: return, length and time of an episode."""


class Delimited(TextFormat):
    """A file of values between commas, semicolons or tabs."""

    _names: list[str] | None = None
    _has_steps = False
    """Whether a column has the name of steps."""
    _delimiter = ","
    _comment = ""
    """The last one, which holds the names if no header does."""
    _monitor_start: float | None = None
    _count = _steps = 0
    """Rows so far; of a Monitor's, the steps of its episodes."""

    @classmethod
    def source(cls, path: str) -> str:
        """Returns the file; the folder of a Monitor's, of which each of several environments has one."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/monitor" if name.endswith("monitor.csv") else path

    def parse(self, line: bytes) -> Iterator[MetricRow]:
        """Yields the row of a line, if it is one."""
        text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r")
        if not text.strip():
            return
        if text.startswith("#"):
            facts = parse_object(text[1:]) or {}  # the first line of a Monitor's file
            self._monitor_start = number(facts.get("t_start")) or self._monitor_start
            self._comment = text[1:]
            return
        if self._names is None:
            bare = _QUOTED.sub("", text)
            self._delimiter = next((mark for mark in "\t;" if mark in bare), ",")
        cells = self._cells(text)
        if self._names is None and not self._see_header(cells):
            return
        names = self._names or []
        while len(cells) > len(names) and not cells[-1]:  # a delimiter ends the line
            cells.pop()
        pairs = zip(names, cells, strict=False)
        values = {name: float(cell) for name, cell in pairs if _NUMBER.fullmatch(cell)}
        if not values and (step_name(cells) or not set(names).isdisjoint(cells)):
            self._name(cells)  # a program that was started again appended
            return
        if len(cells) != len(names):
            return
        count = None if self._has_steps else self._count
        row = self._episode(values) if names[:3] == _MONITOR else row_of(values, count, self.step)
        self._count += 1
        if row is not None and row.values:
            yield row

    def _cells(self, text: str) -> list[str]:
        """Returns the cells of a line.

        Raises:
            UnreadableLogError: there are too many.
        """
        reader = csv.reader([text], delimiter=self._delimiter)
        try:
            cells = [cell.strip() for cell in next(reader, [])]
        except csv.Error:
            return []
        if len(cells) > MOST_COLUMNS:
            raise UnreadableLogError(f"it has {len(cells):,} columns, more than {MOST_COLUMNS:,}")
        return [cell.replace(",", ".") for cell in cells] if self._delimiter == ";" else cells

    def _see_header(self, cells: list[str]) -> bool:
        """Takes the names from the first line; returns whether that is a row already.

        Raises:
            UnreadableLogError: the file does not hold metrics.
        """
        is_row = all(_NUMBER.fullmatch(cell) for cell in cells)
        said = self._cells(self._comment) if is_row else cells
        self._name(said if len(said) == len(cells) else [""] * len(cells))
        stem = self.path.rpartition("/")[2].rpartition(".")[0]
        if not (self._has_steps or _NAMES.search(stem)):
            raise UnreadableLogError
        return is_row

    def _name(self, cells: list[str]) -> None:
        """Takes the names of the columns; a name that is there twice gets its place."""
        names: dict[str, None] = {}
        for place, cell in enumerate(cells):
            name = cell or f"c{place}"
            while name in names:
                name += f".{place}"
            names[name] = None
        self._names = list(names)
        self._has_steps = bool(step_name(names) or self.step in names)

    def _episode(self, values: dict[str, float]) -> MetricRow | None:
        """Returns the row of a Monitor's episode, at the end of its steps."""
        length, at = number(values.get("l")), number(values.get("t"))
        if length is None or at is None:
            return None
        self._steps += max(0, int(length))
        row = row_of(values, self._steps)
        return row and replace(row, time=self._monitor_start + at if self._monitor_start else 0.0)
