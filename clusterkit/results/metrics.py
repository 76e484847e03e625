"""The rows of what a run logs: how a line of metrics.jsonl becomes one, and which of them count."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

from clusterkit.errors import RunError
from clusterkit.units import listed
from clusterkit.untrusted import number, whole_text

LONGEST_LINE = 1 << 20
"""Most bytes of a row's line."""
NO_LINE_BYTES = 64 << 20
"""Bytes without a line end after which reading stops: a sparse file may be huge."""
METRICS = "metrics.jsonl"
"""The file of docs/run-directory.md, in the run directory."""
LOG = "log"
"""The kind of rows of other files than metrics.jsonl."""
KINDS = ("eval", "train", LOG)
"""The kinds of rows that hold metrics; of one name those of the first kind count."""
LARGEST = 1e100
"""Larger numbers count as infinite, because their differences may be."""
_LISTED = 12
"""Names that an error lists."""
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
"""What programs write in JSON that has no NaN, as text."""

_TELLING = re.compile(r"success|return|reward|(^|[/_])rew([/_]|$)|score|^r$", re.IGNORECASE)
_NOT_OF_LEARNING = re.compile(
    r"(^|/)(time|gpu|cpu|memory|system)/|(^|[/_])(fps|sps|seconds?|time|epochs?|iterations?)($|[/_])|(^|/)episodes$"
    r"|success_(low|high)/|(^|[/_])(learning_rate|lr)$|^(schema|total_steps|updates.*|steps_per_second|[lt])$",
    re.IGNORECASE,
)
SUCCESS, RETURN = "success/mean", "return/mean"
SHORT = {"success": SUCCESS, "return": RETURN}
"""Names that stand for the means over tasks if no metric has them."""
_RATINGS = (SUCCESS, RETURN)
"""Metrics that rate a policy; the second counts only if no evaluation has the first."""


@dataclass(frozen=True)
class MetricRow:
    """What was logged at one moment: a line of metrics.jsonl, or a row or number of another file."""

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
        return as_number(self.values.get(key))


def as_number(value: object) -> float | None:
    """Returns a number, see `MetricRow.logged`."""
    if isinstance(value, str):
        return float(value) if _NOT_FINITE.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 300 digits
        return math.inf if value > 0 else -math.inf


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
    documents = (document for line in lines if (document := parse_object(line)) is not None)
    return (row for document in documents if (row := row_in(document)) is not None)


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
    """Returns the names of all numbers, finite or not, in order of appearance.

    Those of successes, returns, rewards and scores come first, those of clocks, machines, counters
    and learning rates last.
    """
    names: dict[str, None] = {}
    for row in rows:
        if row.kind in KINDS:
            for name in row.values:
                if name not in names and row.logged(name) is not None:
                    names[name] = None
    return sorted(names, key=lambda name: bool(_NOT_OF_LEARNING.search(name)) or -bool(_TELLING.search(name)))


def meant(wanted: str, names: Container[str]) -> str:
    """Returns the metric that a user asks for.

    Args:
        wanted: as the user wrote it.
        names: of the metrics that there are.
    """
    return wanted if wanted in names else SHORT.get(wanted, wanted)


def title_of(name: str) -> str:
    """Returns how a metric is called where there is little room."""
    return next((short for short, full in SHORT.items() if full == name), name)


def no_such_metric(wanted: str, names: Iterable[str]) -> RunError:
    """Returns the error for a metric that no run has logged."""
    known = sorted(set(names))
    shown = [name if name.isprintable() else ascii(name)[1:-1] for name in known]
    hint = f"one of {listed(shown, _LISTED)}" if known else None
    return RunError(f"no run logs a number {wanted!r}", hint=hint)


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


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Returns the object in a line; None if it has none, as a line that is half written."""
    try:
        document = whole_text(json.loads(line)) if b"\\ud" in line or b"\\uD" in line else json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def row_in(document: dict[str, Any]) -> MetricRow | None:
    """Returns the row that an object of metrics.jsonl is; None if it is none. The object is changed."""
    kind, step = document.pop("kind", None), document.pop("step", None)
    time, attempt = document.pop("time", 0.0), document.pop("attempt", 0)
    if not isinstance(kind, str) or any(number(value) is None for value in (step, time, attempt)):
        return None
    return MetricRow(kind, int(step), float(time), int(attempt), document)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)
