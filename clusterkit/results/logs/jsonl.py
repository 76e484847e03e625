"""Reads files with a JSON object a line: metrics.jsonl (docs/run-directory.md), and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterkit.results.logs.format import MOST_COLUMNS, TextFormat, row_of, step_name
from clusterkit.results.metrics import METRICS, MetricRow, as_number, parse_object, row_in

_DEEPEST = 4


class JsonLines(TextFormat):
    """A file of objects. Those with a `kind` are rows as they are, of others the numbers are."""

    _count = 0
    _counted = True
    """Whether lines without a step are counted: not in a metrics.jsonl whose first line has kind or step."""

    def parse(self, line: bytes) -> Iterator[MetricRow]:
        """Yields the row of a line, if it is one."""
        values = parse_object(line)
        if values is None:
            return
        if self._count == 0 and self.path == METRICS:
            self._counted = "kind" not in values and not step_name(flat(values)) and self.step not in values
        row = row_in(values) if "kind" in values else self._plain(values)
        self._count += 1
        if row is not None:
            yield row

    def _plain(self, values: Mapping[str, Any]) -> MetricRow | None:
        numbers = flat(values)
        return row_of(numbers, self._count if self._counted else None, self.step) if numbers else None


def flat(values: Mapping[str, Any], above: str = "", depth: int = _DEEPEST) -> dict[str, float]:
    """Returns the numbers of an object and of those in it, under names such as `loss/critic`."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if len(numbers) >= MOST_COLUMNS:
            break
        if isinstance(value, dict) and depth:
            numbers |= flat(value, f"{above}{name}/", depth - 1)
        elif (found := as_number(value)) is not None:
            numbers[above + name] = found
    return numbers
