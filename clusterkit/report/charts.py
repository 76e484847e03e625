"""Selects the curves of a report's charts, over steps and over time. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clusterkit.report.chart_data import (
    CURVE_COLOURS,
    INK,
    SOFT,
    STEPS,
    TIME,
    Chart,
    Curve,
    Scale,
    curve_colour,
)
from clusterkit.report.groups import Point, ReportGroup, ReportRun
from clusterkit.report.main_metric import mean_curve, result
from clusterkit.report.statistics import iqm, iqm_interval
from clusterkit.runs.run_dir import moment
from clusterkit.units import GIB

_BANDED = 4
"""Fewest runs of a group whose mean has a band; of fewer the runs are drawn themselves."""
_OVERLAID_TASKS = 6
"""Most tasks of one group that share a chart; more get a small chart each."""
_MOST_POINTS = 150
_MOST_OWN = 24
"""Most charts of program-specific names."""
_IQM_POINTS, _IQM_DRAWS = 40, 2_000_000
"""Points of a curve of interquartile means, and bootstrap draws for all its intervals together."""


def task_names(groups: Sequence[ReportGroup]) -> list[str]:
    """Returns the tasks of all groups, each once."""
    return list(dict.fromkeys(task for group in groups for task in group.tasks))


def interval_meaning(groups: Sequence[ReportGroup]) -> str:
    """Returns the meaning of the bands and of thin lines, in words."""
    counts = sorted({len(group.runs) for group in groups})
    if counts == [1]:
        return "band: 95% Wilson interval over the evaluation episodes"
    banded = " or ".join(str(count) for count in counts if count >= _BANDED)
    parts = [f"band: 95% Student interval over {banded} runs"] if banded else []
    parts += ["thin lines: single runs, where a group has fewer than four"] if {2, 3} & {*counts} else []
    return "; ".join(parts)


def learning(groups: Sequence[ReportGroup]) -> list[Chart]:
    """Returns charts over steps: success, its interquartile mean, the bundled trainer's return."""
    trained = any(run.recipe for group in groups for run in group.runs)
    returns = [_mean("Return", groups, "return")] if trained else []
    return _with_curves(_mean("Evaluation success", groups, "success"), _iqm(groups), *returns)


def by_task(groups: Sequence[ReportGroup]) -> list[Chart]:
    """Returns a small success chart for each task, if the tasks do not share one."""
    if _overlaid(groups):
        return []
    charts = []
    for task in task_names(groups):
        curves = [
            curve
            for number, group in enumerate(groups)
            for curve in _means(group, f"success/{task}", curve_colour(number), thick=False)
        ]
        charts.append(_over_steps(task, curves, groups, Scale.RATES, small=True))
    return _with_curves(*charts)


def health(groups: Sequence[ReportGroup]) -> list[Chart]:
    """Returns charts of the networks' plasticity over steps."""
    return _with_curves(
        _by_run("Dormant neurons, critics", groups, "diagnostics/dormant/critic", Scale.SHARES),
        _by_run("Dormant neurons, actor", groups, "diagnostics/dormant/actor", Scale.SHARES),
        _by_run("Effective rank, critics", groups, "diagnostics/effective_rank/critic", Scale.FROM_ZERO),
    )


def own(groups: Sequence[ReportGroup], metric: str | None = None) -> list[Chart]:
    """Returns charts over steps of each of `own_numbers` that `machine` does not draw.

    One line per run, and a group's mean if its runs log the same steps; several groups of four runs or more
    have only the means.
    """
    elsewhere = {name for name, chart in _machine(groups).items() if chart.curves}
    names = (name for name in own_numbers(groups, metric) if name not in elsewhere)
    return _with_curves(*(_by_seed(name, groups) for name in names))


def own_numbers(groups: Sequence[ReportGroup], metric: str | None = None) -> list[str]:
    """Returns names of numbers of users' own programs, the main one first, but no evaluated success rates."""
    mains = [main.name for group in groups if (main := result(group, metric))]
    logged = [name for group in groups for run in group.runs for name in run.own_names]
    names = dict.fromkeys(name for name in (*mains, *logged) if metric or name in logged)
    drawn = (name for name in names if metric or not any(group.evaluates(name) for group in groups))
    return list(drawn)[:_MOST_OWN]


def machine(groups: Sequence[ReportGroup]) -> list[Chart]:
    """Returns charts over wall time: steps a second, GPU, processors, memory."""
    return _with_curves(*_machine(groups).values())


def _machine(groups: Sequence[ReportGroup]) -> dict[str, Chart]:
    return {
        "steps_per_second": _over_time("Environment steps a second", groups, "steps_per_second"),
        "gpu/utilization": _over_time("GPU use", groups, "gpu/utilization", Scale.RATES),
        "gpu/memory_bytes": _over_time("GPU memory, GiB", groups, "gpu/memory_bytes", unit=GIB),
        "cpu/share": _over_time("Processor use", groups, "cpu/share", Scale.RATES),
        "memory/rss_bytes": _over_time("Memory, GiB", groups, "memory/rss_bytes", unit=GIB),
    }


def _with_curves(*charts: Chart) -> list[Chart]:
    """Returns the charts with logged data."""
    return [chart for chart in charts if chart.curves]


def _overlaid(groups: Sequence[ReportGroup]) -> bool:
    return len(groups) == 1 and len(groups[0].tasks) <= _OVERLAID_TASKS


def _mean(title: str, groups: Sequence[ReportGroup], metric: str) -> Chart:
    if _overlaid(groups):
        (group,) = groups
        curves = [
            Curve(task, curve_colour(number), _without_interval(group.curve(f"{metric}/{task}")))
            for number, task in enumerate(group.tasks)
        ]
        curves += _means(group, f"{metric}/mean", INK)
    else:
        title += ", mean over tasks" if task_names(groups) else ""
        curves = [
            curve
            for number, group in enumerate(groups)
            for curve in _means(group, f"{metric}/mean", curve_colour(number))
        ]
    return _over_steps(title, curves, groups, Scale.RATES if metric == "success" else Scale.AS_FOUND)


def _means(group: ReportGroup, key: str, colour: str, *, thick: bool = True) -> list[Curve]:
    """Returns a group's mean of a success rate or a return; of two or three runs also the runs."""
    alone = colour == INK
    label, points = "mean" if alone else group.label, group.curve(key)
    if not 1 < len(group.runs) < _BANDED:
        return [Curve(label, colour, points, thick)]
    runs = [
        Curve(
            f"seed {run.document.get('seed')}" if alone else label,
            SOFT if alone else colour,
            _without_interval(ReportGroup(label, (run,)).curve(key)),
            faint=True,
        )
        for run in group.runs
    ]
    return [*runs, Curve(label, colour, _without_interval(points), thick)]


def _iqm(groups: Sequence[ReportGroup]) -> Chart:
    curves = [
        Curve(group.label, curve_colour(number) if len(groups) > 1 else INK, _iqm_curve(group), thick=True)
        for number, group in enumerate(groups)
        if len(group.runs) >= _BANDED
    ]
    return _over_steps(
        "Interquartile mean of success, with its bootstrap interval", curves, groups, Scale.RATES
    )


def _iqm_curve(group: ReportGroup) -> list[Point]:
    """Returns the interquartile mean where every run was evaluated, with its bootstrap interval."""
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


def _by_run(title: str, groups: Sequence[ReportGroup], key: str, scale: Scale = Scale.AS_FOUND) -> Chart:
    """Returns a curve of each run, from its evaluations or else from its training."""
    curves = [replace(line, points=_thinned(run.series(key).finite)) for run, line in _runs(groups)]
    return _over_steps(title, curves, groups, scale)


def _by_seed(name: str, groups: Sequence[ReportGroup]) -> Chart:
    chart = _by_run(name, groups, name)
    if not any(run.recipe for group in groups for run in group.runs):
        chart = replace(chart, axis=replace(chart.axis, name="steps"))
    curves: list[Curve] = []
    for number, group in enumerate(groups):
        runs = [line for line in chart.curves if len(groups) == 1 or line.label == group.label]
        mean = _spread(mean_curve(group, name)) if len(group.runs) > 1 else []
        banded = len(group.runs) >= _BANDED
        if mean and len(groups) == 1:
            thick = Curve("mean", INK, mean if banded else _without_interval(mean), thick=True)
            faint = [replace(line, colour=SOFT, faint=True) for line in runs]
            curves += [*faint, thick] if banded else [thick, *runs]
        elif mean:
            curves += [] if banded else [replace(line, faint=True) for line in runs]
            shown = mean if banded else _without_interval(mean)
            curves.append(Curve(group.label, curve_colour(number), shown, thick=True))
        else:
            curves += runs
    return replace(chart, curves=tuple(curves))


def _spread(curve: Sequence[Point]) -> list[Point]:
    """Returns an even selection of the points, including the last."""
    size = -(-len(curve) // _MOST_POINTS) or 1
    return list(curve[::-1][::size][::-1])


def _over_time(
    title: str, groups: Sequence[ReportGroup], key: str, scale: Scale = Scale.FROM_ZERO, *, unit: float = 1.0
) -> Chart:
    curves, starts = [], []
    for run, line in _runs(groups):
        origin = _began(run)
        for attempt in sorted({row.attempt for row in run.rows}):  # a line each: between them is a wait
            rows = [row for row in run.rows if row.kind == "train" and row.attempt == attempt]
            found = [
                (row.time - origin, value / unit) for row in rows if (value := row.number(key)) is not None
            ]
            curves.append(replace(line, points=_thinned(found)))
        starts += [
            (row.time - origin, f"{run.directory.run_id}: attempt {row.attempt}")
            for row in run.rows
            if row.kind == "run" and row.attempt > 0
        ]
    end = max((point.step for curve in curves for point in curve.points), default=0)
    marks = tuple((at, text) for at, text in starts if at <= end)
    return Chart(title, _drawn(curves), end, TIME, scale, starts=marks)


def _drawn(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    return tuple(curve for curve in curves if curve.points)


def _began(run: ReportRun) -> float:
    """Returns the time of a run's first start, or of its first line if no attempt is recorded."""
    starts = [moment(attempt.start or {}, "started") for attempt in run.directory.attempts]
    times = [start for start in starts if start is not None]
    return min(times or [row.time for row in run.rows if row.kind == "train"], default=0.0)


def _runs(groups: Sequence[ReportGroup]) -> Iterator[tuple[ReportRun, Curve]]:
    """Yields every run with a line without points: by seed or, with several groups, by group."""
    many = any(len(group.runs) > CURVE_COLOURS for group in groups)
    for number, group in enumerate(groups):
        for place, run in enumerate(group.runs):
            if len(groups) > 1:
                yield run, Curve(group.label, curve_colour(number), (), faint=many)
            else:
                colour = SOFT if many else curve_colour(place)
                yield run, Curve(f"seed {run.document.get('seed')}", colour, (), faint=many)


def _over_steps(
    title: str, curves: Sequence[Curve], groups: Sequence[ReportGroup], scale: Scale, *, small: bool = False
) -> Chart:
    last = max(run.last_step for group in groups for run in group.runs)
    return Chart(title, _drawn(curves), last, STEPS, scale, small)


def _without_interval(curve: Sequence[Point]) -> list[Point]:
    return [Point(point.step, point.value, None) for point in curve]


def _thinned(points: Sequence[tuple[float, float]]) -> list[Point]:
    """Returns means over equal intervals, so that a long run does not make a large page."""
    size = -(-len(points) // _MOST_POINTS) or 1
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        Point(round(stretch[-1][0]), statistics.fmean(value for _, value in stretch), None)
        for stretch in stretches
    ]
