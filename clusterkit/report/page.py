"""Renders one self-contained HTML page about runs: no network, light and dark, fit for mail and print."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from clusterkit import __version__
from clusterkit.report import charts
from clusterkit.report.advice import GroupAdvice
from clusterkit.report.bars import bar_charts
from clusterkit.report.chart_data import curve_colour, visible
from clusterkit.report.charts import own_numbers
from clusterkit.report.facts import EqualRuns, RunFacts, describe, provenance
from clusterkit.report.groups import Point, ReportGroup, ReportRun
from clusterkit.report.main_metric import (
    MainResult,
    diverged,
    diverged_words,
    final,
    lasts,
    result,
)
from clusterkit.report.measured import known, share
from clusterkit.report.paper import Published, published
from clusterkit.report.pictures import inline_svg
from clusterkit.report.statistics import Interval, difference, iqm, iqm_interval
from clusterkit.resources import TEMPLATES
from clusterkit.runs.run_dir import table
from clusterkit.runs.spec import short_of
from clusterkit.units import format_seconds, significant

_MOST_SEEDS = 10
"""Most runs of a group whose last values have a column each, and whose logs are in the header."""
_MOST_NAMES = 3
"""Most names in a title."""


@dataclass(frozen=True)
class Summary:
    """The final numbers of one group."""

    group: ReportGroup
    colour: str
    step: int
    success: Point | None
    result: MainResult | None
    """Its main number."""
    iqm: float | None
    """Interquartile mean over tasks and runs; None for one run."""
    iqm_interval: Interval | None
    steps_per_second: float | None
    running: float | None
    """Mean wall time of a run with all its attempts, seconds."""
    gpu: float | None
    """Mean utilisation, 0..1."""
    dormant: float | None
    """Mean share of dormant critic neurons at the last evaluation."""
    seeds_iqm: float | None
    """Interquartile mean over seeds of the mean success: the statistic of the paper."""
    seeds_interval: Interval | None
    published: Published | None
    difference: tuple[float, Interval | None] | None
    """Mean success, or else main number, minus that of the first group, with its interval; None for the first
    and without any."""

    @property
    def seeds(self) -> str:
        """The seeds in use, of many in a row the first and the last."""
        seeds = [run.document.get("seed") for run in self.group.runs]
        numbers = sorted(seed for seed in seeds if isinstance(seed, int))
        if len(numbers) == len(seeds) > _MOST_SEEDS and numbers == [*range(numbers[0], numbers[-1] + 1)]:
            return f"{numbers[0]} to {numbers[-1]}"
        return ", ".join(map(str, seeds))


@dataclass(frozen=True)
class RunLine:
    """One run in the list of all."""

    facts: RunFacts
    value: Point | None
    """The final value of its group's main number."""
    log: str | None
    """Where the page links to its log."""


def render(
    groups: Sequence[ReportGroup],
    advice: Sequence[GroupAdvice],
    *,
    now: datetime,
    metric: str | None = None,
    equal: Sequence[EqualRuns] = (),
    folder: Path,
) -> str:
    """Renders the page as HTML; everything from a run is escaped, including control characters.

    Args:
        groups: groups of runs.
        advice: advice for each group, in the same order.
        now: the time the page shows.
        metric: the main metric; None lets `main_metric.result` choose.
        equal: runs that are equal in every metric.
        folder: of the page, from which it links to logs.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": partial(significant, digits=4),
        "span": format_seconds,
        "share": share,
        "marked": _marked,
        "drawn": inline_svg,
    }
    summaries = [
        _summarise(group, group_advice, curve_colour(number), groups[0], metric)
        for number, (group, group_advice) in enumerate(zip(groups, advice, strict=True))
    ]
    own = charts.own(groups, metric)
    lines = [_line(run, summary, folder) for summary in summaries for run in summary.group.runs]
    page = environment.get_template("report.html.j2").render(
        title=_title(groups),
        groups=groups,
        summaries=summaries,
        equal=equal,
        charts=charts.learning(groups),
        task_charts=charts.by_task(groups),
        bars=bar_charts(advice),
        machine=charts.machine(groups),
        own=own,
        finals=_final_rows(groups, metric),
        banded=any(point.interval for chart in own for curve in chart.curves for point in curve.points),
        health=charts.health(groups),
        tasks=charts.task_names(groups),
        meaning=charts.interval_meaning(groups),
        advice=advice,
        runs=lines,
        names=list(dict.fromkeys(summary.result.title for summary in summaries if summary.result)),
        logs=[line for line in lines if line.log and len(lines) <= _MOST_SEEDS],
        provenance=provenance([run for group_advice in advice for run in group_advice.measured]),
        written=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )
    return visible(page)


def _title(groups: Sequence[ReportGroup]) -> str:
    """Returns the names of the runs; of one run or group, with its short name before it."""
    if len(groups) == 1:
        short, *others = {short_of(run.document).partition("/")[0] for run in groups[0].runs}
        return f"{short}: {groups[0].label}" if short and not others else groups[0].label
    names = list(dict.fromkeys(str(run.document.get("name")) for group in groups for run in group.runs))
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(groups)} groups of runs"


def _line(run: ReportRun, summary: Summary, folder: Path) -> RunLine:
    facts, main = describe(run), summary.result
    value = final(ReportGroup(summary.group.label, (run,)), main.name) if main else None
    log = None
    if facts.log_file:
        log = quote(os.path.relpath(facts.log_file.resolve(), folder.resolve()))
    return RunLine(facts, value, log)


def _summarise(
    group: ReportGroup, advice: GroupAdvice, colour: str, first: ReportGroup, metric: str | None
) -> Summary:
    scores, main = group.final_scores(), result(group, metric)
    means = group.final_means()
    ours, firsts = (_finals(member, main) for member in (group, first))
    lost = main is not None and bool(main.diverged)  # the others are a selection
    several = len(group.runs) > 1 and any(scores) and not lost
    compared = group is not first and ours and firsts
    return Summary(
        group=group,
        colour=colour,
        step=group.final_step or 0,
        success=group.final("success/mean"),
        result=main,
        iqm=iqm([score for run in scores for score in run]) if several else None,
        iqm_interval=iqm_interval(scores) if several else None,
        steps_per_second=_mean(run.steps_per_second for run in group.runs),
        running=_mean(member.running or None for member in advice.measured),
        gpu=_mean(member.gpu for member in advice.measured),
        dormant=_mean(member.dormant for member in advice.measured),
        seeds_iqm=iqm(means) if means and not lost else None,
        seeds_interval=iqm_interval([[mean] for mean in means]),
        published=published(table(group.runs[0].recipe, "values")),
        difference=(fmean(ours) - fmean(firsts), difference(ours, firsts)) if compared else None,
    )


def _finals(group: ReportGroup, main: MainResult | None) -> list[float]:
    """Returns what groups are compared by, one value a run: the final success, or else the main number.

    Empty if a run diverged.
    """
    if main is not None and diverged(group, main.name):
        return []
    if main is None or (main.rate and not main.last_tenth):
        return group.final_means()
    return [value for _, value in lasts(group, main.name)]


@dataclass(frozen=True)
class FinalRow:
    """The final values of one number of users' own programs."""

    name: str
    points: tuple[Point | None, ...]
    """For each group the mean over its runs, with its interval."""
    runs: tuple[float | None, ...]
    """The value of each run of a single group; empty for several groups or one run."""
    diverged: tuple[str, ...]
    """For each group how many runs diverged, and since when; an empty text if none did."""


def _final_rows(groups: Sequence[ReportGroup], metric: str | None) -> list[FinalRow]:
    runs = groups[0].runs if len(groups) == 1 and 1 < len(groups[0].runs) <= _MOST_SEEDS else ()
    alone = [ReportGroup(groups[0].label, (run,)) for run in runs]
    return [
        FinalRow(
            name,
            tuple(final(group, name) for group in groups),
            tuple(point.value if (point := final(single, name)) else None for single in alone),
            tuple(_diverged(group, name, several=len(groups) > 1) for group in groups),
        )
        for name in own_numbers(groups, metric)
    ]


def _diverged(group: ReportGroup, name: str, *, several: bool) -> str:
    whys = diverged(group, name)
    if not whys:
        return ""
    return (f"{group.label}: " if several else "") + diverged_words(whys, len(group.runs))


def _marked(text: str) -> Markup:
    """Returns escaped text in which `...` is code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(part) if place % 2 else escape(part) for place, part in enumerate(text.split("`"))
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = known(values)
    return fmean(numbers) if numbers else None
