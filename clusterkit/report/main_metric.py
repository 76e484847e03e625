"""A report's main metric: its choice, final value, and mean over seeds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.errors import RunError
from clusterkit.report.groups import Point, ReportGroup
from clusterkit.report.statistics import student
from clusterkit.results.metrics import MetricRow, own_names, with_number

SUCCESS, RETURN = "success/mean", "return/mean"
_SHORT = {"success": SUCCESS, "return": RETURN}
_LISTED = 12
"""Names that an error lists."""


@dataclass(frozen=True)
class MainResult:
    """The final result of a group."""

    name: str
    """As the program logs it."""
    point: Point
    """The mean over runs at the last common evaluation; for other numbers over each run's last value."""
    runs: int

    @property
    def title(self) -> str:
        """The name as a column title."""
        return next((short for short, name in _SHORT.items() if name == self.name), self.name)

    @property
    def rate(self) -> bool:
        """Whether it is a share of episodes, 0..1."""
        return self.name.startswith("success/")

    @property
    def meaning(self) -> str:
        """The meaning of its interval, or why there is none."""
        if self.runs == 1:
            return "95% interval over episodes" if self.point.interval else "one run: no interval"
        over = f"over {self.runs} runs"
        return f"95% Student interval {over}" if self.point.interval else f"no interval {over}"


def result(group: ReportGroup, wanted: str | None = None) -> MainResult | None:
    """The main number of a group.

    It is the success rate, else the return, else the first number in the evaluations, else the first number
    in training.

    Args:
        group: runs that differ in their seed.
        wanted: the name of another logged number.
    """
    names = [_SHORT.get(wanted, wanted)] if wanted else [SUCCESS, RETURN, *_own(group)]
    for name in names:
        point = _final(group, name)
        if point is not None:
            return MainResult(name, point, sum(bool(with_number(run.rows, name)) for run in group.runs))
    return None


def check(groups: Sequence[ReportGroup], wanted: str) -> None:
    """Refuse a name that no run logs.

    Raises:
        RunError: as it says.
    """
    if any(result(group, wanted) for group in groups):
        return
    rows = [
        row for group in groups for run in group.runs for row in run.rows if row.kind in ("train", "eval")
    ]
    known = sorted({name for row in rows for name in row.values if row.number(name) is not None})
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    raise RunError(
        f"no run logs a number {wanted!r}", hint=f"--metric takes one of {', '.join(known[:_LISTED])}{more}"
    )


def mean_curve(group: ReportGroup, name: str) -> list[Point]:
    """The mean over runs with its 95% Student interval, at the steps at which all of them log the number."""
    found = [{row.step: row.number(name) or 0.0 for row in with_number(run.rows, name)} for run in group.runs]
    steps = sorted(set.intersection(*(set(one) for one in found)))
    at = [(step, [one[step] for one in found]) for step in steps]
    return [Point(step, statistics.fmean(values), student(values)) for step, values in at]


def _own(group: ReportGroup) -> list[str]:
    """Program-specific names, those of evaluations first."""
    rows = [row for run in group.runs if not run.recipe for row in run.rows]
    return list(dict.fromkeys([*own_names(row for row in rows if row.kind == "eval"), *own_names(rows)]))


def _final(group: ReportGroup, name: str) -> Point | None:
    if name.startswith(("success/", "return/")):
        return group.final(name)
    lasts: list[MetricRow] = [rows[-1] for run in group.runs if (rows := with_number(run.rows, name))]
    values = [value for row in lasts if (value := row.number(name)) is not None]
    if not values:
        return None
    return Point(max(row.step for row in lasts), statistics.fmean(values), student(values))
