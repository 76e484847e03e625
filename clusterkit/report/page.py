"""One self-contained HTML page about some runs: no network, light and dark, made to be mailed and printed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from clusterkit import __version__
from clusterkit.report.facts import describe
from clusterkit.report.figures import OVERLAID_TASKS, interval_meaning, task_names
from clusterkit.report.groups import Group, Point
from clusterkit.report.panels import Panel, Series, panel
from clusterkit.report.statistics import Interval, iqm, iqm_interval
from clusterkit.resources import resource

_WIDE = (620.0, 300.0)
_SMALL = (260.0, 150.0)
_INK = 6
"""Index of the text colour in the page's palette, behind the six colours of curves."""
_MOST_POINTS = 150


@dataclass(frozen=True)
class Summary:
    """The final numbers of one group."""

    group: Group
    colour: int
    step: int
    success: Point | None
    iqm: float | None
    """Over tasks and runs; None for one run."""
    iqm_interval: Interval | None
    steps_per_second: float | None

    @property
    def seeds(self) -> str:
        """The seeds in use."""
        return ", ".join(str(run.document.get("seed")) for run in self.group.runs)


def render(groups: Sequence[Group], *, now: datetime) -> str:
    """The page as HTML text; everything that comes from a run is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tasks = task_names(groups)
    return environment.get_template("report.html.j2").render(
        title=groups[0].label if len(groups) == 1 else f"{len(groups)} groups of runs",
        groups=groups,
        summaries=[summarise(group, number % _INK) for number, group in enumerate(groups)],
        charts=_charts(groups),
        task_charts=_task_charts(groups, tasks) if len(groups) > 1 or len(tasks) > OVERLAID_TASKS else [],
        tasks=tasks,
        meaning=interval_meaning(groups),
        runs=[describe(run) for group in groups for run in group.runs],
        written=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )


def summarise(group: Group, colour: int = 0) -> Summary:
    """The final numbers of a group."""
    scores = group.final_scores()
    several = len(group.runs) > 1 and any(scores)
    speeds = [speed for run in group.runs if (speed := run.steps_per_second) is not None]
    return Summary(
        group=group,
        colour=colour,
        step=group.final_step or 0,
        success=group.final("success/mean"),
        iqm=iqm([score for seeds in scores for score in seeds]) if several else None,
        iqm_interval=iqm_interval(scores) if several else None,
        steps_per_second=statistics.fmean(speeds) if speeds else None,
    )


def _charts(groups: Sequence[Group]) -> list[Panel]:
    """The wide charts: success, return, speed."""
    return [
        chart
        for chart in (
            _wide("Evaluation success", groups, "success"),
            _wide("Return", groups, "return"),
            _speed(groups),
        )
        if chart is not None
    ]


def _wide(title: str, groups: Sequence[Group], metric: str) -> Panel | None:
    lines = []
    if len(groups) == 1 and len(groups[0].tasks) <= OVERLAID_TASKS:
        (group,) = groups
        lines += [
            Series(task, number % _INK, _without_interval(group.curve(f"{metric}/{task}")))
            for number, task in enumerate(group.tasks)
        ]
        lines.append(Series("mean", _INK, group.curve(f"{metric}/mean"), thick=True))
    else:
        title += ", mean over tasks"
        lines += [
            Series(group.label, number % _INK, group.curve(f"{metric}/mean"), thick=True)
            for number, group in enumerate(groups)
        ]
    return _panel(title, lines, groups, _WIDE, rate=metric == "success")


def _speed(groups: Sequence[Group]) -> Panel | None:
    """Environment steps a second over steps; vertical lines where a run was started again."""
    lines = []
    starts = []
    alone = len(groups) == 1
    for number, group in enumerate(groups):
        for place, run in enumerate(group.runs):
            points = [(row.step, rate) for row in run.training if (rate := row.number("steps_per_second"))]
            label = f"seed {run.document.get('seed')}" if alone else group.label
            lines.append(Series(label, (place if alone else number) % _INK, _thinned(points)))
            resumed = [row for row in run.rows if row.kind == "run" and row.attempt > 0]
            starts += [(row.step, f"{run.directory.run_id}: attempt {row.attempt}") for row in resumed]
    return _panel("Environment steps a second", lines, groups, _WIDE, from_zero=True, starts=starts)


def _task_charts(groups: Sequence[Group], tasks: Sequence[str]) -> list[Panel]:
    charts = []
    for task in tasks:
        curves = [group.curve(f"success/{task}") for group in groups]
        lines = [
            Series(group.label, number % _INK, curve)
            for number, (group, curve) in enumerate(zip(groups, curves, strict=True))
        ]
        charts.append(_panel(task, lines, groups, _SMALL, rate=True))
    return [chart for chart in charts if chart is not None]


def _panel(
    title: str,
    lines: Sequence[Series],
    groups: Sequence[Group],
    size: tuple[float, float],
    *,
    rate: bool = False,
    from_zero: bool = False,
    starts: Sequence[tuple[int, str]] = (),
) -> Panel | None:
    """A chart, or None when there is nothing in it."""
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    last = max(run.last_step for group in groups for run in group.runs)
    width, height = size
    return panel(
        title,
        lines,
        width=width,
        height=height,
        rate=rate,
        from_zero=from_zero,
        last_step=last,
        starts=starts,
    )


def _without_interval(curve: Sequence[Point]) -> list[Point]:
    return [Point(point.step, point.value, None) for point in curve]


def _thinned(points: Sequence[tuple[int, float]]) -> list[Point]:
    """Means over equal stretches, so that a long run does not make a long page."""
    size = -(-len(points) // _MOST_POINTS) or 1
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        Point(stretch[-1][0], statistics.fmean(value for _, value in stretch), None) for stretch in stretches
    ]
