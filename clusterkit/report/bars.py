"""The bar charts of a report: when attempts ran, and where the time went. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from clusterkit.report.advice import NAMES, GroupAdvice
from clusterkit.report.chart_data import TIME, BarChart, RunBar, Stretch, XAxis
from clusterkit.report.groups import ReportRun
from clusterkit.report.measured import PARTS, Measured, share
from clusterkit.runs.run_dir import moment
from clusterkit.units import format_seconds
from clusterkit.untrusted import one_line

_PARTS = {
    "c0": "updates",
    "c5": NAMES["act"],
    "c1": "waiting for physics",
    "c2": NAMES["evaluate"],
    "c4": "checkpoints",
    "rest": NAMES["other"],
}
"""Names of the parts of the loop, in the order of `PARTS`, by colour."""
_ENDS = {"completed": "c2", "requeue": "c0", "timeout": "c4", "cancelled": "c5"}
_NAMES = {
    "rest": "waiting",
    "c2": "completed",
    "c0": "requeued",
    "c4": "time limit",
    "c5": "cancelled, or no record of its end",
    "warn": "failed",
}
"""Outcomes of attempts, by colour."""


def bar_charts(advice: Sequence[GroupAdvice]) -> list[BarChart]:
    """Returns charts of the attempts since submission and of the parts of the loop's time, if recorded."""
    several = len(advice) > 1
    runs = [
        (f"{group.label}, {_seed(measured.run)}" if several else _seed(measured.run), measured)
        for group in advice
        for measured in group.measured
    ]
    counts = [len(measured.run.directory.attempts) for _, measured in runs]
    attempts = [
        RunBar(label + (f", {count} attempts" if count != 1 else ""), _attempts(measured.run))
        for (label, measured), count in zip(runs, counts, strict=True)
    ]
    end = max((piece.start + piece.length for bar in attempts for piece in bar.stretches), default=0.0)
    parts = [RunBar(label, _parts(measured)) for label, measured in runs if measured.shares]
    charts = (
        _chart("Attempts, by time since submission", attempts, end, _NAMES, TIME),
        _chart("Where the loop's time went", parts, 1.0, _PARTS),
    )
    return [chart for chart in charts if chart.bars and chart.end > 0]


def _chart(
    title: str, bars: Sequence[RunBar], end: float, names: Mapping[str, str], axis: XAxis | None = None
) -> BarChart:
    used = {stretch.colour for bar in bars for stretch in bar.stretches}
    legend = {name: colour for colour, name in names.items() if colour in used}
    return BarChart(title, tuple(bars), end, legend, axis)


def _parts(measured: Measured) -> tuple[Stretch, ...]:
    stretches, start = [], 0.0
    for part, colour in zip(PARTS, _PARTS, strict=True):
        length = measured.shares[part]
        if length > 0:
            text = share(length)
            stretches.append(
                Stretch(start, length, colour, f"{part}: {text}", text if length >= 0.09 else "")
            )
        start += length
    return tuple(stretches)


def _attempts(run: ReportRun) -> tuple[Stretch, ...]:
    """Waits and attempts, by outcome, in seconds since submission."""
    starts = [(attempt, moment(attempt.start or {}, "started")) for attempt in run.directory.attempts]
    started = [(attempt, start) for attempt, start in starts if start is not None]
    if not started:
        return ()
    _, first = started[0]
    now = origin = min(_created(run) or first, first)
    last_line = max((row.time for row in run.rows), default=0.0)
    stretches = []
    for attempt, start in started:
        ended = moment(attempt.exit or {}, "ended")
        stop = max(start, last_line if ended is None else ended)
        if (wait := start - now) >= 1:
            stretches.append(Stretch(now - origin, wait, "rest", f"waited {format_seconds(wait)}"))
        why = str((attempt.exit or {}).get("why") or "no record of its end")
        if why == "signalled" and attempt.cancel is not None:
            why = "cancelled"
        colour = _ENDS.get(why, "warn" if attempt.exit else "c5")
        reasons = [why, (attempt.exit or {}).get("detail"), (attempt.start or {}).get("retry")]
        text = ", ".join(one_line(reason) for reason in reasons if reason)
        words = f"attempt {attempt.number}: {format_seconds(stop - start)}, {text}"
        stretches.append(Stretch(start - origin, stop - start, colour, words))
        now = stop
    return tuple(stretches)


def _seed(run: ReportRun) -> str:
    return f"seed {run.document.get('seed')}"


def _created(run: ReportRun) -> float | None:
    try:
        return datetime.fromisoformat(str(run.document.get("created"))).timestamp()
    except ValueError:
        return None
