"""A report's main metric: its choice, final value, and mean over seeds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.errors import RunError
from clusterkit.report.groups import Point, ReportGroup
from clusterkit.report.statistics import student
from clusterkit.results.metrics import own_names
from clusterkit.results.series import Series

SUCCESS, RETURN = "success/mean", "return/mean"
_SHORT = {"success": SUCCESS, "return": RETURN}
_LISTED = 12
"""Names that an error lists."""


@dataclass(frozen=True)
class MainResult:
    """The final result of a group."""

    name: str
    """As the program logs it."""
    point: Point | None
    """The mean over runs at the last common evaluation; for other numbers over each run's last value. Runs
    that diverged are left out, and then there is no interval; None if all did."""
    runs: int
    first_step: int
    """The step of the run that has come least far."""
    last_step: int
    """The step of the run that has come farthest."""
    diverged: tuple[str, ...] = ()
    """Of each run whose last value is not finite, in words."""

    @property
    def at(self) -> str:
        """The steps that the runs have reached."""
        first, last = self.first_step, self.last_step
        return f"{last:,}" if first == last else f"{first:,} to {last:,}"

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
        if self.diverged:
            return diverged_words(self.diverged, self.runs)
        assert self.point is not None
        if self.runs == 1:
            return "95% interval over episodes" if self.point.interval else "one run: no interval"
        over = f"over {self.runs} runs"
        return f"95% Student interval {over}" if self.point.interval else f"no interval {over}"


def result(group: ReportGroup, wanted: str | None = None) -> MainResult | None:
    """Returns the main number of a group.

    It is the success rate, else the return, else the first number in the evaluations, else the first number
    in training.

    Args:
        group: runs that differ in their seed.
        wanted: the name of another logged number.
    """
    names = [full_name(wanted)] if wanted else [SUCCESS, RETURN, *_own(group)]
    for name in names:
        point, logged = final(group, name), _logged(group, name)
        steps = [values.points[-1][0] for values in logged]
        if point and name.startswith(("success/", "return/")):
            steps = [point.step]
        if point or diverged(group, name):
            return MainResult(name, point, len(logged), min(steps), max(steps), diverged(group, name))
    return None


def full_name(wanted: str) -> str:
    """Returns the name of a metric as it is logged; `success` and `return` stand for their means."""
    return _SHORT.get(wanted, wanted)


def final(group: ReportGroup, name: str) -> Point | None:
    """Returns the final value of a group, with its 95% interval.

    It is the mean over runs of the last value that each logged; of success rates and returns the last point
    of the curve. If runs diverged, it is the others' and has no interval, because they are a selection.
    """
    if name.startswith(("success/", "return/")):
        return group.final(name)
    points = lasts(group, name)
    values = [value for _, value in points]
    if not points:
        return None
    interval = None if diverged(group, name) else student(values)
    return Point(max(step for step, _ in points), statistics.fmean(values), interval)


def lasts(group: ReportGroup, name: str) -> list[tuple[int, float]]:
    """Returns the last step and value of a number in each run that logged it and has not diverged."""
    return [values.last for values in _logged(group, name) if values.last is not None]


def diverged(group: ReportGroup, name: str) -> tuple[str, ...]:
    """Returns since when, of each run whose last value of a number is not finite."""
    return tuple(values.why for values in _logged(group, name) if values.why is not None)


def diverged_words(whys: Sequence[str], runs: int) -> str:
    """Says how many runs diverged, and since when the first of them had."""
    if len(whys) == runs:
        return whys[0] if runs == 1 else f"all {runs} runs diverged: {whys[0]}"
    return f"{len(whys)} of {runs} runs diverged ({whys[0]}): the mean is of the others, without interval"


def _logged(group: ReportGroup, name: str) -> list[Series]:
    return [values for run in group.runs if (values := run.series(name)).points]


def check(groups: Sequence[ReportGroup], wanted: str) -> None:
    """Refuses a name that no run logs.

    Raises:
        RunError: as it says.
    """
    if any(result(group, wanted) for group in groups):
        return
    rows = [
        row for group in groups for run in group.runs for row in run.rows if row.kind in ("train", "eval")
    ]
    names = sorted({name for row in rows for name in row.values if row.logged(name) is not None})
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    raise RunError(
        f"no run logs a number {wanted!r}", hint=f"--metric takes one of {', '.join(names[:_LISTED])}{more}"
    )


def mean_curve(group: ReportGroup, name: str) -> list[Point]:
    """Returns the mean over runs with its 95% Student interval, where all of them log the number."""
    curves = [dict(run.series(name).finite) for run in group.runs]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    at = [(step, [curve[step] for curve in curves]) for step in steps]
    return [Point(step, statistics.fmean(values), student(values)) for step, values in at]


def _own(group: ReportGroup) -> list[str]:
    """Returns program-specific names, those of evaluations first."""
    rows = [row for run in group.runs if not run.recipe for row in run.rows]
    return list(dict.fromkeys([*own_names(row for row in rows if row.kind == "eval"), *own_names(rows)]))
