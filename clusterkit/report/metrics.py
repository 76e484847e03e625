"""Reads metrics.jsonl (docs/run-directory.md). Pure."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_OF_THE_FORM = re.compile(
    r"(success|success_low|success_high|return|time|gpu|cpu|memory)/.*|schema|total_steps|steps_per_second"
    r"|episodes|seconds|updates|updates_per_second|updates_skipped"
)
"""Names that docs/run-directory.md gives a meaning of their own."""


@dataclass(frozen=True)
class Row:
    """One line of metrics.jsonl."""

    kind: str
    step: int
    """Environment steps."""
    time: float
    """Unix seconds."""
    attempt: int
    values: Mapping[str, Any]
    """Everything else in the line."""

    def number(self, key: str) -> float | None:
        """A finite number, or None."""
        return _finite(self.values.get(key))


def parse(lines: Iterable[bytes]) -> list[Row]:
    """The rows of a metrics file, in file order.

    Lines that are no row are left out: the last one may be half written, and a program of the user's own
    may write others.
    """
    return list(each(lines))


def each(lines: Iterable[bytes]) -> Iterator[Row]:
    """The same, one after another."""
    return (row for line in lines if (row := _row(line)) is not None)


def latest(rows: Iterable[Row], kind: str) -> list[Row]:
    """The rows of one kind by step, each step once.

    A resumed attempt repeats the steps since its checkpoint; of one step the highest attempt's line counts,
    and of one attempt's lines the last.
    """
    chosen: dict[int, Row] = {}
    for row in rows:
        if row.kind == kind and (row.step not in chosen or row.attempt >= chosen[row.step].attempt):
            chosen[row.step] = row
    return [chosen[step] for step in sorted(chosen)]


def own_names(rows: Iterable[Row]) -> list[str]:
    """Names of numbers that only the program knows the meaning of, in the order in which they appear."""
    names: dict[str, None] = {}
    for row in rows:
        if row.kind in ("train", "eval"):
            for name in row.values:
                if name not in names and row.number(name) is not None and not _OF_THE_FORM.fullmatch(name):
                    names[name] = None
    return list(names)


def with_number(rows: Iterable[Row], name: str) -> list[Row]:
    """The rows that hold a number of this name, by step, each step once: of evaluations, else of training.

    A program of the user's own may write what it knows of one step in several lines.
    """
    found = [row for row in rows if row.number(name) is not None]
    return latest(found, "eval") or latest(found, "train")


def first_not_finite(rows: Iterable[Row]) -> tuple[str, int] | None:
    """Name and step of the first number that is infinite or none at all, such as a loss; None without one."""
    for row in rows:
        for name, value in row.values.items():
            if isinstance(value, float) and not math.isfinite(value):
                return name, row.step
    return None


def stretched(rows: Iterable[Row], prefix: str, stretch: int) -> list[Row]:
    """Means of the numbers under a prefix over equal stretches of steps, each at the end of its stretch."""
    gathered: dict[int, list[Row]] = {}
    for row in rows:
        if any(key.startswith(prefix) for key in row.values):
            gathered.setdefault(-(-row.step // stretch) * stretch, []).append(row)
    means = []
    for step, inside in sorted(gathered.items()):
        keys = dict.fromkeys(key for row in inside for key in row.values if key.startswith(prefix))
        numbers = {key: [value for row in inside if (value := row.number(key)) is not None] for key in keys}
        values = {key: statistics.fmean(found) for key, found in numbers.items() if found}
        means.append(Row(inside[-1].kind, step, inside[-1].time, inside[-1].attempt, values))
    return means


def _row(line: bytes) -> Row | None:
    try:
        document = json.loads(line)
        kind, step = document.pop("kind"), document.pop("step")
        time, attempt = document.pop("time", 0.0), document.pop("attempt", 0)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or any(_finite(number) is None for number in (step, time, attempt)):
        return None
    return Row(kind, int(step), float(time), int(attempt), document)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None
