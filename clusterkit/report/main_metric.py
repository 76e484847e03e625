"""A report's main metric: its choice, final value, and mean over seeds. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.errors import RunError
from clusterkit.report.groups import Point, ReportGroup
from clusterkit.report.statistics import student
from clusterkit.results.metrics import own_names, with_number

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
    first_step: int
    """The step of the run that has come least far; the point's own step is that of the farthest."""

    @property
    def at(self) -> str:
        """The steps that the runs have reached."""
        last = self.point.step
        return f"{last:,}" if self.first_step == last else f"{self.first_step:,} to {last:,}"

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
    names = [full_name(wanted)] if wanted else [SUCCESS, RETURN, *_own(group)]
    for name in names:
        if name.startswith(("success/", "return/")):
            point = group.final(name)
            steps = [point.step] if point else []
        else:
            point, steps = final(group, name), [step for step, _ in lasts(group, name)]
        if point is not None:
            runs = sum(bool(with_number(run.rows, name)) for run in group.runs)
            return MainResult(name, point, runs, min(steps))
    return None


def full_name(wanted: str) -> str:
    """The name of a metric as it is logged; `success` and `return` stand for their means."""
    return _SHORT.get(wanted, wanted)


def final(group: ReportGroup, name: str) -> Point | None:
    """The mean over runs of the last value that each logged, with its 95% Student interval."""
    found = lasts(group, name)
    values = [value for _, value in found]
    return Point(max(step for step, _ in found), statistics.fmean(values), student(values)) if found else None


def lasts(group: ReportGroup, name: str) -> list[tuple[int, float]]:
    """The last step and value of a number in each run that logged it."""
    rows = [rows[-1] for run in group.runs if (rows := with_number(run.rows, name))]
    return [(row.step, value) for row in rows if (value := row.number(name)) is not None]


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
