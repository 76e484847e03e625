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
_MONITOR = ["r", "l", "t"]
"""First columns of Gym's and Stable-Baselines3's Monitor: return, length and time of an episode."""


class Delimited(TextFormat):
    """A file of values between commas, semicolons or tabs."""

    _names: list[str] | None = None
    _delimiter = ","
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
            return
        if self._names is None:
            self._delimiter = max(",;\t", key=text.count)
        cells = self._cells(text)
        if self._names is None and not self._see_header(cells):
            return
        names = self._names or []
        if len(cells) != len(names):
            return
        pairs = zip(names, cells, strict=True)
        values = {name: float(cell) for name, cell in pairs if _NUMBER.fullmatch(cell)}
        row = self._episode(values) if names[:3] == _MONITOR else row_of(values, self._count, self.step)
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
        names = [f"c{place}" for place in range(len(cells))] if is_row else cells
        self._names = [name or f"c{place}" for place, name in enumerate(names)]
        stem = self.path.rpartition("/")[2].rpartition(".")[0]
        if not (step_name(self._names) or self.step in self._names or _NAMES.search(stem)):
            raise UnreadableLogError
        return is_row

    def _episode(self, values: dict[str, float]) -> MetricRow | None:
        """Returns the row of a Monitor's episode, at the end of its steps."""
        length, at = number(values.get("l")), number(values.get("t"))
        if length is None or at is None:
            return None
        self._steps += max(0, int(length))
        row = row_of(values, self._steps)
        return row and replace(row, time=self._monitor_start + at if self._monitor_start else 0.0)
