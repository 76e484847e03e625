"""One metric of one run by step, and whether it ended in values that are not finite.

The last value of a metric is the one that was logged last, finite or not. A run that diverged therefore has
no final value, however good its earlier ones were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile

from clusterkit.results.metrics import KINDS, LARGEST, MetricRow, latest, own_names, title_of
from clusterkit.units import significant

_NAMED = 3
"""Most metrics that a sentence about values that are not finite names."""

Point = tuple[int, float]
"""A step and the value there."""


@dataclass(frozen=True)
class Series:
    """The values of a metric, at each step one."""

    name: str
    points: tuple[Point, ...]
    """By step; infinite or NaN where the value was not finite."""
    nulls: int = 0
    """The last points that were logged as null."""

    @cached_property
    def finite(self) -> list[Point]:
        """The points that can be drawn."""
        return [point for point in self.points if math.isfinite(point[1])]

    @cached_property
    def lost(self) -> int:
        """How many points at the end are not finite."""
        return len(list(takewhile(lambda point: not math.isfinite(point[1]), reversed(self.points))))

    @property
    def lost_from(self) -> int | None:
        """The step from which no value was finite to the end; None if the last one is finite."""
        return self.points[-self.lost][0] if self.lost else None

    @property
    def last(self) -> Point | None:
        """The last point; None without one, and if its value is not finite."""
        return self.points[-1] if self.points and not self.lost else None

    @cached_property
    def final(self) -> Point | None:
        """The last step, and the mean of the values in the last tenth of the steps; None as for `last`.

        Of a success rate the last value: an evaluation is a mean already.
        """
        if self.last is None or self.name.startswith("success/"):
            return self.last
        first, (end, _) = self.points[0][0], self.last
        tail = [value for step, value in self.finite if end - step <= (end - first) / 10]
        return end, math.fsum(tail) / len(tail)

    @property
    def why(self) -> str | None:
        """Why a metric that was logged has no last value; None if it has one."""
        if self.lost_from is None:
            return None
        how = "null, not finite," if self.lost == self.nulls else "not finite"
        return f"{self.name} was {how} from step {self.lost_from:,} to the end"


def series(rows: Iterable[MetricRow], name: str) -> Series:
    """Returns a metric's values, of evaluations, or else of training, or else of other logs.

    A user's own program may write several lines for one step. JSON writers that cannot write NaN write null,
    which also stands for a value that was not measured. So nulls at the end count as not finite only if there
    are more of them in a row than before any number.
    """
    named = [row for row in rows if name in row.values]
    logged = [row for row in named if row.logged(name) is not None]
    missing = [row for row in named if row.values[name] is None]
    for kind in KINDS:
        if not any(row.kind == kind for row in logged):
            continue
        # Of the lines of one step, one with a number counts.
        values = [(row.step, row.logged(name)) for row in latest([*missing, *logged], kind)]
        lengths = [(null, len([*group])) for null, group in groupby(values, lambda point: point[1] is None)]
        nulls = lengths[-1][1] if lengths[-1][0] else 0
        if nulls <= max((length for null, length in lengths[:-1] if null), default=0):
            nulls = 0
        points = [(step, _drawable(value)) for step, value in values if value is not None]
        points += [(step, math.nan) for step, _ in values[len(values) - nulls :]]
        return Series(name, tuple(points), nulls)
    return Series(name, ())


def headline(rows: Sequence[MetricRow]) -> str | None:
    """Says what the main metric of a user's own program came to; None without one."""
    for name in own_names(rows)[:1]:
        values = series(rows, name)
        return values.why if values.final is None else f"{title_of(name)} {significant(values.final[1])}"
    return None


def not_finite(rows: Sequence[MetricRow]) -> list[Series]:
    """Returns the metrics that had values that were not finite, the worst first.

    Those that were not finite at the end come before the others, then those with the most such points.
    """
    names = {
        name: None
        for row in rows
        if row.kind in KINDS
        for name, value in row.values.items()
        if row.number(name) is None and (value is None or row.logged(name) is not None)
    }
    damaged = [
        metric for metric in (series(rows, name) for name in names) if len(metric.finite) < len(metric.points)
    ]
    return sorted(damaged, key=lambda metric: (not metric.lost, len(metric.finite) - len(metric.points)))


def not_finite_words(metrics: Sequence[Series]) -> str:
    """Says of metrics from `not_finite` at how many points they were not finite, and where."""
    more = f"; and {len(metrics) - _NAMED} more" if len(metrics) > _NAMED else ""
    return "; ".join(map(_described, metrics[:_NAMED])) + more


def _drawable(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > LARGEST else value


def _described(metric: Series) -> str:
    odd = [step for step, value in metric.points if not math.isfinite(value)]
    words = f"{metric.name} was not finite at {len(odd):,} of {len(metric.points):,} points"
    if metric.lost == len(odd):
        return f"{words}, from step {odd[0]:,} to the end"
    words += f", first at step {odd[0]:,}"
    return words if metric.lost_from is None else f"{words}, and from step {metric.lost_from:,} to the end"
