"""The charts of a page: which curves of which runs, over steps and over time. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clusterkit.report.figures import OVERLAID_TASKS
from clusterkit.report.groups import Group, Point, Run
from clusterkit.report.main_metric import RETURN, SUCCESS, mean_curve, result
from clusterkit.report.metrics import Row, with_number
from clusterkit.report.panels import STEPS, TIME, Axis, Panel, Series, panel
from clusterkit.report.statistics import iqm, iqm_interval
from clusterkit.runs.run_dir import moment

WIDE = (620.0, 300.0)
SMALL = (260.0, 150.0)
INK = 6
"""Index of the text colour in the page's palette, behind the six colours of curves."""
_MOST_POINTS = 150
_MOST_OWN = 24
"""Charts of names that only the program knows."""
_IQM_POINTS, _IQM_DRAWS = 40, 2_000_000
"""Of a curve of interquartile means; draws of a score for all its intervals together."""


@dataclass(frozen=True)
class Plot:
    """What one chart shows, before it has coordinates."""

    title: str
    lines: tuple[Series, ...]
    end: float
    """Right end of the x axis."""
    axis: Axis
    size: tuple[float, float] = WIDE
    rate: bool = False
    """The values are rates; the axis runs from 0 to 100%."""
    percent: bool = False
    """The values are shares, on an axis that ends where they do."""
    from_zero: bool = False
    starts: tuple[tuple[float, str], ...] = ()
    """(x, text) of later attempts."""

    def panel(self) -> Panel:
        """Lay it out for the page."""
        width, height = self.size
        return panel(
            self.title,
            self.lines,
            width=width,
            height=height,
            rate=self.rate,
            from_zero=self.from_zero,
            percent=self.percent,
            end=self.end,
            axis=self.axis,
            starts=self.starts,
        )


def learning(groups: Sequence[Group]) -> list[Plot]:
    """Over steps: success, its interquartile mean over seeds, return."""
    charts = (_mean("Evaluation success", groups, "success"), _iqm(groups), _mean("Return", groups, "return"))
    return [chart for chart in charts if chart is not None]


def by_task(groups: Sequence[Group], tasks: Sequence[str]) -> list[Plot]:
    """A small chart of success for each task."""
    charts = []
    for task in tasks:
        lines = [
            Series(group.label, number % INK, group.curve(f"success/{task}"))
            for number, group in enumerate(groups)
        ]
        charts.append(_over_steps(task, lines, groups, SMALL, rate=True))
    return [chart for chart in charts if chart is not None]


def health(groups: Sequence[Group]) -> list[Plot]:
    """Over steps: how fit the networks still are to learn."""
    charts = (
        _diagnostic("Dormant neurons, critics", groups, "diagnostics/dormant/critic", percent=True),
        _diagnostic("Dormant neurons, actor", groups, "diagnostics/dormant/actor", percent=True),
        _diagnostic("Effective rank, critics", groups, "diagnostics/effective_rank/critic"),
    )
    return [chart for chart in charts if chart is not None]


def own(groups: Sequence[Group], metric: str | None = None) -> list[Plot]:
    """Over steps: what programs of the user's own have logged under names of their own, the main one first.

    A line a run, and the mean of a group's where they log the same steps; of several groups their means.
    """
    found = (result(group, metric) for group in groups)
    mains = [one.name for one in found if one and (metric or one.name not in (SUCCESS, RETURN))]
    logged = (name for group in groups for run in group.runs for name in run.own_names)
    names = dict.fromkeys([*mains, *logged])
    charts = (_by_seed(name, groups) for name in list(names)[:_MOST_OWN])
    return [chart for chart in charts if chart is not None]


def machine(groups: Sequence[Group]) -> list[Plot]:
    """Over wall time: steps a second, GPU, processors, memory."""
    kinds: tuple[tuple[str, str, float, bool], ...] = (
        ("Environment steps a second", "steps_per_second", 1.0, False),
        ("GPU use", "gpu/utilization", 1.0, True),
        ("GPU memory, GiB", "gpu/memory_bytes", 2.0**-30, False),
        ("Processor use", "cpu/share", 1.0, True),
        ("Memory, GiB", "memory/rss_bytes", 2.0**-30, False),
    )
    charts = (_over_time(title, groups, key, scale, rate) for title, key, scale, rate in kinds)
    return [chart for chart in charts if chart is not None]


def began(run: Run) -> float:
    """Unix seconds of a run's first start; of its first line where no attempt is recorded."""
    starts = [moment(attempt.start or {}, "started") for attempt in run.directory.attempts]
    known = [start for start in starts if start is not None]
    return min(known or [row.time for row in run.rows if row.kind == "train"], default=0.0)


def _mean(title: str, groups: Sequence[Group], metric: str) -> Plot | None:
    lines = []
    if len(groups) == 1 and len(groups[0].tasks) <= OVERLAID_TASKS:
        (group,) = groups
        lines += [
            Series(task, number % INK, _without_interval(group.curve(f"{metric}/{task}")))
            for number, task in enumerate(group.tasks)
        ]
        lines.append(Series("mean", INK, group.curve(f"{metric}/mean"), thick=True))
    else:
        title += ", mean over tasks"
        lines += [
            Series(group.label, number % INK, group.curve(f"{metric}/mean"), thick=True)
            for number, group in enumerate(groups)
        ]
    return _over_steps(title, lines, groups, WIDE, rate=metric == "success")


def _iqm(groups: Sequence[Group]) -> Plot | None:
    lines = [
        Series(group.label, number % INK if len(groups) > 1 else INK, iqm_curve(group), thick=True)
        for number, group in enumerate(groups)
        if len(group.runs) > 1
    ]
    return _over_steps("Interquartile mean of success, over tasks and seeds", lines, groups, WIDE, rate=True)


def iqm_curve(group: Group) -> list[Point]:
    """The interquartile mean at the steps at which every run was evaluated, with its bootstrap interval."""
    steps = group.common_steps
    chosen = steps[:: -(-len(steps) // _IQM_POINTS) or 1]
    chosen += [] if not steps or chosen[-1] == steps[-1] else [steps[-1]]
    points = []
    for step in chosen:
        scores = group.scores(step)
        flat = [score for run in scores for score in run]
        if flat:
            resamples = min(2000, max(200, _IQM_DRAWS // (len(flat) * len(chosen))))
            points.append(Point(step, iqm(flat), iqm_interval(scores, resamples=resamples)))
    return points


def _diagnostic(title: str, groups: Sequence[Group], key: str, *, percent: bool = False) -> Plot | None:
    plot = _by_run(title, groups, key)
    return plot and replace(plot, from_zero=True, percent=percent)


def _by_run(title: str, groups: Sequence[Group], key: str) -> Plot | None:
    """A line a run: of its evaluations, and where these do not have it of its training."""
    return _over_steps(
        title,
        [
            Series(
                _name(groups, group, run),
                _colour(groups, group, run),
                _points(with_number(run.rows, key), key),
            )
            for group in groups
            for run in group.runs
        ],
        groups,
        WIDE,
    )


def _by_seed(name: str, groups: Sequence[Group]) -> Plot | None:
    plot = _by_run(name, groups, name)
    if plot is not None and not any(run.recipe for group in groups for run in group.runs):
        plot = replace(plot, axis=replace(plot.axis, name="steps"))
    means = {group.label: _spread(mean_curve(group, name)) for group in groups if len(group.runs) > 1}
    if plot is None or not any(means.values()):
        return plot
    if len(groups) == 1:
        return replace(plot, lines=(Series("mean", INK, means[groups[0].label], thick=True), *plot.lines))
    lines = [line for line in plot.lines if not means.get(line.label)]
    lines += [
        Series(group.label, number % INK, means[group.label], thick=True)
        for number, group in enumerate(groups)
        if means.get(group.label)
    ]
    return replace(plot, lines=tuple(lines))


def _spread(curve: Sequence[Point]) -> list[Point]:
    """Some of the points, evenly, with the last one."""
    size = -(-len(curve) // _MOST_POINTS) or 1
    return list(curve[::-1][::size][::-1])


def _over_time(title: str, groups: Sequence[Group], key: str, scale: float, rate: bool) -> Plot | None:
    lines, starts = [], []
    for group in groups:
        for run in group.runs:
            origin = began(run)
            resumed = [row for row in run.rows if row.kind == "run" and row.attempt > 0]
            for attempt in sorted({row.attempt for row in run.rows}):  # a line each: between them is a wait
                rows = [row for row in run.rows if row.kind == "train" and row.attempt == attempt]
                found = [
                    (row.time - origin, value * scale)
                    for row in rows
                    if (value := row.number(key)) is not None
                ]
                lines.append(Series(_name(groups, group, run), _colour(groups, group, run), _thinned(found)))
            starts += [
                (row.time - origin, f"{run.directory.run_id}: attempt {row.attempt}") for row in resumed
            ]
    end = max((point.step for line in lines for point in line.points), default=0)
    drawn = tuple(line for line in lines if line.points)
    marks = tuple((at, text) for at, text in starts if at <= end)
    return Plot(title, drawn, end, TIME, rate=rate, from_zero=True, starts=marks) if drawn else None


def _name(groups: Sequence[Group], group: Group, run: Run) -> str:
    return f"seed {run.document.get('seed')}" if len(groups) == 1 else group.label


def _colour(groups: Sequence[Group], group: Group, run: Run) -> int:
    return (group.runs.index(run) if len(groups) == 1 else groups.index(group)) % INK


def _points(rows: Sequence[Row], key: str) -> list[Point]:
    return _thinned([(row.step, value) for row in rows if (value := row.number(key)) is not None])


def _over_steps(
    title: str,
    lines: Sequence[Series],
    groups: Sequence[Group],
    size: tuple[float, float],
    *,
    rate: bool = False,
    from_zero: bool = False,
    percent: bool = False,
) -> Plot | None:
    last = max(run.last_step for group in groups for run in group.runs)
    drawn = tuple(line for line in lines if line.points)
    return Plot(title, drawn, last, STEPS, size, rate, percent, from_zero) if drawn else None


def _without_interval(curve: Sequence[Point]) -> list[Point]:
    return [Point(point.step, point.value, None) for point in curve]


def _thinned(points: Sequence[tuple[float, float]]) -> list[Point]:
    """Means over equal stretches, so that a long run does not make a long page."""
    size = -(-len(points) // _MOST_POINTS) or 1
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        Point(round(stretch[-1][0]), statistics.fmean(value for _, value in stretch), None)
        for stretch in stretches
    ]
