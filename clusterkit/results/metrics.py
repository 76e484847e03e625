"""Reads metrics.jsonl (docs/run-directory.md), whatever its size."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from clusterkit.untrusted import number, open_regular, whole_text

BUDGET = 24 << 20
"""Bytes of lines up to which every row is kept; Python objects take several times as much."""
LONGEST_LINE = 1 << 20
"""Most bytes of a row's line."""
NO_LINE_BYTES = 64 << 20
"""Bytes without a line end after which reading stops: a sparse file may be huge."""
_KINDS = 100
"""Most kinds of rows in a file."""
LARGEST = 1e100
"""Larger numbers count as infinite, because their differences may be."""
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
"""What programs write in JSON that has no NaN, as text."""

_OF_THE_FORM = re.compile(
    r"(success|success_low|success_high|return|time|gpu|cpu|memory)/.*|schema|total_steps|steps_per_second"
    r"|episodes|seconds|updates|updates_per_second|updates_skipped"
)
"""Names defined in docs/run-directory.md."""
_RATINGS = ("success/mean", "return/mean")
"""Metrics that rate a policy; the second counts only if no evaluation has the first."""


@dataclass(frozen=True)
class MetricRow:
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
        """Returns a finite, drawable number, or None."""
        return _finite(self.values.get(key))

    def logged(self, key: str) -> float | None:
        """Returns a number, which may be infinite or NaN, however JSON writes it; None for the rest.

        Null is among the rest, because it may stand for NaN or for no value, see `clusterkit.results.series`.
        """
        value = self.values.get(key)
        if isinstance(value, str):
            return float(value) if _NOT_FINITE.fullmatch(value) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            return float(value)
        except OverflowError:  # a whole number of more than 300 digits
            return math.inf if value > 0 else -math.inf


class MetricRows:
    """Rows of a metrics file in file order, in bounded memory.

    Every row is kept up to `budget` bytes of lines. Beyond that, the kind of row that takes the most bytes
    keeps every second row, then every fourth, and so on, and always the last. Evaluations stay complete as
    long as they take less than the training rows.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._count = self._bytes = 0
        self._kinds: dict[str, _Kind] = {}

    def add(self, lines: Iterable[bytes]) -> None:
        """Adds the rows in some lines.

        Other lines are ignored: the last may be half written, and users' own programs may write anything.
        """
        for line in lines:
            if (row := _row(line)) is None:
                continue
            if row.kind not in self._kinds and len(self._kinds) == _KINDS:
                continue
            kind = self._kinds.setdefault(row.kind, _Kind())
            self._count += 1
            self._bytes += kind.add(_BytePlace(self._count, len(line), row))
            while self._bytes > self._budget:
                most = max(self._kinds.values(), key=lambda candidate: candidate.bytes)
                if not (freed := most.thin()):
                    break
                self._bytes -= freed

    @property
    def rows(self) -> tuple[MetricRow, ...]:
        """The kept rows."""
        places = [place for kind in self._kinds.values() for place in kind.kept()]
        return tuple(place.row for place in sorted(places, key=lambda place: place.number))


@dataclass(frozen=True)
class _BytePlace:
    """A row with its number in the file and its line's bytes."""

    number: int
    bytes: int
    row: MetricRow


class _Kind:
    """The rows of one kind: every `stride`-th, and the last."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stride, self._seen = 1, 0
        self._places: list[_BytePlace] = []
        self._last: _BytePlace | None = None

    def add(self, place: _BytePlace) -> int:
        """Adds the next row; returns the increase in kept bytes."""
        kept = self._seen % self._stride == 0
        self._seen += 1
        self._last = place
        if kept:
            self._places.append(place)
            self.bytes += place.bytes
        return place.bytes if kept else 0

    def thin(self) -> int:
        """Drops every second row; returns the bytes freed."""
        if len(self._places) < 2:
            return 0
        self._stride *= 2
        gone = sum(place.bytes for place in self._places[1::2])
        del self._places[1::2]
        self.bytes -= gone
        return gone

    def kept(self) -> Iterator[_BytePlace]:
        yield from self._places
        if self._last is not None and self._last is not self._places[-1]:
            yield self._last


def read(path: Path) -> tuple[MetricRow, ...]:
    """Reads a metrics file's rows; empty if it is missing or not a regular file."""
    rows = MetricRows()
    with suppress(OSError), open_regular(path) as file:
        rows.add(lines_of(file))
    return rows.rows


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file; a very long line comes in pieces, none of which is a row.

    Reading stops after `NO_LINE_BYTES` without a line end.
    """
    without_end = 0
    for piece in iter(partial(file.readline, LONGEST_LINE), b""):
        yield piece
        without_end = 0 if piece.endswith(b"\n") else without_end + len(piece)
        if without_end >= NO_LINE_BYTES:
            return


def each(lines: Iterable[bytes]) -> Iterator[MetricRow]:
    """Returns all rows among some lines, one after another."""
    return (row for line in lines if (row := _row(line)) is not None)


def latest(rows: Iterable[MetricRow], kind: str) -> list[MetricRow]:
    """Returns the rows of one kind by step, each step once, with all that its lines say.

    A resumed attempt repeats the steps since its checkpoint, but need not log at the same ones. So from its
    first row on, the rows of earlier attempts do not count.
    """
    of_kind = [row for row in rows if row.kind == kind]
    first: dict[int, int] = {}
    for row in of_kind:
        first[row.attempt] = min(row.step, first.get(row.attempt, row.step))
    ends = overtaken(first)
    chosen: dict[int, MetricRow] = {}
    for row in of_kind:
        if row.step < ends[row.attempt]:
            before = chosen.get(row.step)
            chosen[row.step] = replace(row, values={**before.values, **row.values}) if before else row
    return [chosen[step] for step in sorted(chosen)]


def overtaken(first: Mapping[int, int]) -> dict[int, float]:
    """Returns the step from which later attempts count instead of each attempt; infinite for the last.

    Args:
        first: the first step that each attempt logged.
    """
    ends, end = {}, math.inf
    for attempt in sorted(first, reverse=True):
        ends[attempt] = end
        end = min(end, first[attempt])
    return ends


def last_step(rows: Iterable[MetricRow]) -> int | None:
    """Returns the step that the last attempt reached; None without rows."""
    last = max(rows, key=lambda row: (row.attempt, row.step), default=None)
    return None if last is None else last.step


def rating_only(row: MetricRow) -> MetricRow:
    """Returns an evaluation without its other numbers, of which a long run has too many to keep."""
    return replace(row, values={name: row.values[name] for name in _RATINGS if name in row.values})


def ratings(rows: Sequence[MetricRow]) -> tuple[str, dict[int, float]]:
    """Returns the metric by which evaluations are rated, and its value at each step of one."""
    rated: dict[int, float] = {}
    for name in _RATINGS:
        evaluations = latest((row for row in rows if name in row.values), "eval")
        rated = {row.step: rate for row in evaluations if (rate := row.number(name)) is not None}
        if rated:
            break
    return name, rated


def own_names(rows: Iterable[MetricRow]) -> list[str]:
    """Returns names of program-specific numbers, finite or not, in order of appearance."""
    names: dict[str, None] = {}
    for row in rows:
        if row.kind in ("train", "eval"):
            for name in row.values:
                if name not in names and row.logged(name) is not None and not _OF_THE_FORM.fullmatch(name):
                    names[name] = None
    return list(names)


def stretched(rows: Iterable[MetricRow], prefix: str, stretch: int) -> list[MetricRow]:
    """Returns means of the numbers with a prefix over equal intervals of steps, each at its end."""
    gathered: dict[int, list[MetricRow]] = {}
    for row in rows:
        if any(key.startswith(prefix) for key in row.values):
            gathered.setdefault(-(-row.step // stretch) * stretch, []).append(row)
    means = []
    for step, inside in sorted(gathered.items()):
        keys = dict.fromkeys(key for row in inside for key in row.values if key.startswith(prefix))
        values = {key: _mean(inside, key) for key in keys}
        means.append(MetricRow(inside[-1].kind, step, inside[-1].time, inside[-1].attempt, values))
    return means


def _mean(rows: Iterable[MetricRow], key: str) -> float | None:
    """Returns the mean of the finite numbers; without any, NaN if one was logged, and else None."""
    numbers = [value for row in rows if (value := row.logged(key)) is not None]
    finite = [value for value in numbers if math.isfinite(value)]
    return statistics.fmean(finite) if finite else math.nan if numbers else None


def _row(line: bytes) -> MetricRow | None:
    try:
        document = whole_text(json.loads(line)) if b"\\ud" in line or b"\\uD" in line else json.loads(line)
        kind, step = document.pop("kind"), document.pop("step")
        time, attempt = document.pop("time", 0.0), document.pop("attempt", 0)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or any(number(value) is None for value in (step, time, attempt)):
        return None
    return MetricRow(kind, int(step), float(time), int(attempt), document)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)
