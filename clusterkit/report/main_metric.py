"""A report's main metric: its choice, final value, and mean over seeds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.report.groups import Point, ReportGroup
from clusterkit.report.statistics import student
from clusterkit.results.metrics import RETURN, SUCCESS, meant, no_such_metric, own_names, title_of
from clusterkit.results.series import Series


@dataclass(frozen=True)
class MainResult:
    """The final result of a group."""

    name: str
    """As the program logs it."""
    point: Point | None
    """The mean over runs at the last common evaluation; for other numbers over each run's mean of the last
    tenth of its steps. Runs that diverged are left out, and then there is no interval; None if all did."""
    runs: int
    first_step: int
    """The step of the run that has come least far."""
    last_step: int
    """The step of the run that has come farthest."""
    diverged: tuple[str, ...] = ()
    """Of each run whose last value is not finite, in words."""
    last_tenth: bool = False
    """Whether it is of the last tenth of the steps."""

    @property
    def at(self) -> str:
        """The steps that the runs have reached."""
        first, last = self.first_step, self.last_step
        return f"{last:,}" if first == last else f"{first:,} to {last:,}"

    @property
    def title(self) -> str:
        """The name as a column title."""
        return title_of(self.name)

    @property
    def described(self) -> str:
        """What the number is."""
        if self.last_tenth:
            return f"{self.title}, mean of the last tenth of {self.at} steps"
        return f"mean {self.title} at {self.at} steps"

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

    It is the success rate in evaluations, and of the bundled trainer else the return. Of users' own programs
    it is else the first number in the evaluations, else the first in training, else in other logs, in the
    order of `own_names`.

    Args:
        group: runs that differ in their seed.
        wanted: the name of another logged number.
    """
    usual = dict.fromkeys((SUCCESS, *_own(group), RETURN))
    for name in [meant(wanted, _all_names(group))] if wanted else usual:
        point, logged = final(group, name), _logged(group, name)
        steps = [values.points[-1][0] for values in logged]
        evaluated = group.evaluates(name)
        if point and evaluated:
            steps = [point.step]
        if point or diverged(group, name):
            whys = diverged(group, name)
            return MainResult(name, point, len(logged), min(steps), max(steps), whys, not evaluated)
    return None


def final(group: ReportGroup, name: str) -> Point | None:
    """Returns the final value of a group, with its 95% interval.

    It is the mean over runs of `Series.final`; of evaluations the last point of the curve. If runs diverged,
    it is the others' and has no interval, because they are a selection.
    """
    if group.evaluates(name):
        return group.final(name)
    points = lasts(group, name)
    values = [value for _, value in points]
    if not points:
        return None
    interval = None if diverged(group, name) else student(values)
    return Point(max(step for step, _ in points), statistics.fmean(values), interval)


def lasts(group: ReportGroup, name: str) -> list[tuple[int, float]]:
    """Returns the last step and final value of a number in each run that logged it and has not diverged."""
    return [values.final for values in _logged(group, name) if values.final is not None]


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
    if not any(result(group, wanted) for group in groups):
        raise no_such_metric(wanted, (name for group in groups for name in _all_names(group)))


def mean_curve(group: ReportGroup, name: str) -> list[Point]:
    """Returns the mean over runs with its 95% Student interval, where all of them log the number."""
    curves = [dict(run.series(name).finite) for run in group.runs]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    at = [(step, [curve[step] for curve in curves]) for step in steps]
    return [Point(step, statistics.fmean(values), student(values)) for step, values in at]


def _own(group: ReportGroup) -> list[str]:
    """Returns the names of users' own programs, those of evaluations first."""
    rows = [row for run in group.runs if not run.recipe for row in run.rows]
    return list(dict.fromkeys([*own_names(row for row in rows if row.kind == "eval"), *own_names(rows)]))


def _all_names(group: ReportGroup) -> list[str]:
    """Returns the names of all numbers that the runs logged."""
    return own_names(row for run in group.runs for row in run.rows)
