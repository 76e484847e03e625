"""The numbers of a metrics.jsonl, of each step once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from clusterkit.results.metrics import LONGEST_LINE, MetricRow, each, lines_of, overtaken

_KINDS = ("train", "eval")
_YEAR_9999 = 253_370_764_800.0


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One number."""

    name: str
    """Its kind and name, e.g. `train/loss`."""
    step: int
    time: float
    """Unix seconds."""
    value: float
    """May be infinite or NaN: a run that diverges shows it."""


def points(file: BinaryIO, known: int | None = None) -> Iterator[MetricPoint]:
    """Yield each name and step once, by step.

    Of a step, the highest attempt counts, and its last line that has the number. Lines are read twice
    because their numbers may not fit in memory.

    Args:
        file: a metrics.jsonl, open at its start.
        known: for a tracker that can only add: leave out what the first so many bytes have, by name and step.
            None for one that is written anew: a name's numbers of earlier attempts end, as in `series`, where
            those of a later one begin.
    """
    places: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    first: dict[tuple[str, str], dict[int, int]] = {}
    end = 0
    for line in lines_of(file):
        start, end = end, end + len(line)
        for row in each((line,)):
            if row.kind in _KINDS:
                # Without its line end: the last line may get it later.
                place = (row.attempt, start, start + len(line.rstrip(b"\n")))
                places.setdefault((row.step, row.kind), []).append(place)
                for name in _numbers(row) if known is None else ():
                    steps = first.setdefault((row.kind, name), {})
                    steps[row.attempt] = min(row.step, steps.get(row.attempt, row.step))
    ends = {name: overtaken(steps) for name, steps in first.items()}
    for (step, kind), lines in sorted(places.items()):
        if known is not None and max(until for _, _, until in lines) <= known:
            continue
        found: dict[str, MetricPoint] = {}
        old: set[str] = set()
        for attempt, start, until in sorted(lines):
            file.seek(start)
            for row in each((file.readline(LONGEST_LINE),)):
                numbers = _numbers(row)
                if known is not None and until <= known:
                    old |= numbers.keys()
                for name, value in numbers.items():
                    if known is not None or step < ends[kind, name][attempt]:
                        time = min(max(row.time, 0.0), _YEAR_9999)
                        found[name] = MetricPoint(f"{kind}/{name}", step, time, value)
        yield from (point for name, point in found.items() if name not in old)


def _numbers(row: MetricRow) -> dict[str, float]:
    return {name: value for name in row.values if (value := row.logged(name)) is not None}
