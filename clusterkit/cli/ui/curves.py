"""Success, return and speed of a run as curves in the terminal, redrawn while it runs or printed once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import format_count, out, printable
from clusterkit.cli.ui.plot import plot
from clusterkit.report.metrics import MetricRow, latest, own_names, with_number
from clusterkit.runs.outlook import time_left
from clusterkit.units import format_seconds

if TYPE_CHECKING:
    from clusterkit.commands.watch import Curves

_WIDE = 120
"""Columns from which on the curves stand side by side."""
_ONCE_HEIGHT, _LEAST_HEIGHT = 8, 3
"""Lines of a curve: printed once; on a screen at least."""
_AXIS = 6
"""Columns of the numbers beside a curve."""
_OWN = 3
"""Curves of a program of the user's own: the first it names."""
_STYLES = ("green", "cyan", "yellow")
_AROUND = 2
"""Lines of a panel besides the curve: its title and its axis."""


Look = TypeVar("Look")
Draw = Callable[[Look, int, int | None], RenderableType]
"""Makes a picture of a look, so many columns wide and lines high; None where nothing limits the lines."""


@dataclass(frozen=True)
class CurvePanel:
    """One curve: its points by step, the range of its axis, and how its values are written."""

    name: str
    points: list[tuple[float, float]]
    up: tuple[float, float]
    words: Callable[[float], str]
    style: str
    best: bool = False
    """More is better, so the highest value is named."""


def is_live() -> bool:
    """Whether there is a screen to redraw."""
    return out.is_terminal


def show_live(looks: Iterator[Look], draw: Draw[Look]) -> None:
    """Redraw until the run has ended, or Ctrl-C; what was seen last stays."""
    last = first = next(looks)  # a login that asks something asks it before the screen is taken
    try:
        with Live(console=out, auto_refresh=False, screen=True) as live:
            for last in itertools.chain([first], looks):
                live.update(draw(last, out.width, out.height - 1), refresh=True)
    finally:
        out.print(draw(last, out.width, out.height - 1))


def show_once(looks: Iterator[Look], draw: Draw[Look]) -> None:
    """Print what there is."""
    for one in looks:
        out.print(draw(one, out.width, None))


def view(one: Curves, width: int, height: int | None = None) -> RenderableType:
    """One picture.

    Args:
        one: what to show.
        width: columns of the terminal.
        height: lines to fill; None where nothing limits them.
    """
    shown = panels(one)
    beside = len(shown) if width >= _WIDE else 1
    stacked = -(-len(shown) // beside)
    head = [_title(one), *_events(one)]
    cell = (width - 2 * (beside - 1)) // beside
    span = max((row.step for row in one.rows), default=1)
    lines = _ONCE_HEIGHT
    if height is not None:
        lines = (height - len(head)) // stacked - _AROUND
        lines = max(_LEAST_HEIGHT, min(lines, cell // 3))
    grid = Table.grid(padding=(0, 2))
    for first in range(0, len(shown), beside):
        grid.add_row(*(_draw(panel, span, cell, lines) for panel in shown[first : first + beside]))
    for text in head:
        text.truncate(width, overflow="ellipsis")
    return Group(*head, grid)


def _title(one: Curves) -> Text:
    words = [str(one.state.state)]
    step = max((row.step for row in one.rows), default=None)
    if step is not None:
        total = one.total_steps
        words.append(f"step {format_count(step)}" + (f" of {format_count(total)}" if total else ""))
        rate = next((rate for row in reversed(one.rows) if (rate := row.number("steps_per_second"))), None)
        if total and rate and one.state.state is JobState.RUNNING:
            words.append(f"{format_seconds(time_left(step=step, total=total, rate=rate, age=0.0))} left")
    if one.synced is not None:
        words.append(f"synced copy of {one.synced:%Y-%m-%d %H:%M}")
    return Text.assemble((one.run.run_id, "bold"), "  ", ", ".join(words))


def _events(one: Curves) -> list[Text]:
    """The newest thing a person should know; what the scheduler says where there is nothing else."""
    texts = [row.values["message"] for row in one.rows if row.kind == "event" and "message" in row.values]
    if not one.rows and one.state.why:
        texts = [one.state.why]
    return [Text(printable(" ".join(str(texts[-1]).split())), style="dim")] if texts else []


def panels(one: Curves) -> list[CurvePanel]:
    """What is drawn of a run: success, return and speed, or what a program of the user's own reports."""
    evaluations, training = latest(one.rows, "eval"), latest(one.rows, "train")
    success = _points(evaluations, "success/mean")
    returns = _points(evaluations, "return/mean") or _means(training, "return/")
    speed = _points(training, "steps_per_second")
    if not one.run.recipe and not success and not returns and (names := own_names(one.rows)):
        curves = {name: _points(with_number(one.rows, name), name) for name in names[:_OWN]}
        return [
            CurvePanel(name, points, _range(points), _short, style)
            for (name, points), style in zip(curves.items(), _STYLES, strict=False)
        ]
    return [
        CurvePanel("success", success, (0.0, 1.0), lambda share: f"{share:.0%}", "green", best=True),
        CurvePanel("return", returns, _range(returns), _short, "cyan", best=True),
        CurvePanel("steps/s", speed, (0.0, max((y for _, y in speed), default=1.0)), _short, "yellow"),
    ]


def _points(rows: Sequence[MetricRow], key: str) -> list[tuple[float, float]]:
    return [(row.step, value) for row in rows if (value := row.number(key)) is not None]


def _means(rows: Sequence[MetricRow], prefix: str) -> list[tuple[float, float]]:
    """Means over the tasks that a line names."""
    points = []
    for row in rows:
        keys = [key for key in row.values if key.startswith(prefix)]
        numbers = [value for key in keys if (value := row.number(key)) is not None]
        if numbers:
            points.append((float(row.step), sum(numbers) / len(numbers)))
    return points


def _range(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    values = [0.0, *(y for _, y in points)]
    low, high = min(values), max(values)
    return low, high if high > low else 1.0


def _draw(panel: CurvePanel, span: float, width: int, height: int) -> Text:
    """A title with the last and best value, the curve between two axes, and the steps below."""
    room = max(1, width - _AXIS - 1)
    text = Text(f"{'':{_AXIS}} ")
    text.append(panel.name, "bold")
    if not panel.points:
        text.append("  nothing yet", "dim")
    else:
        _, value = panel.points[-1]
        text.append(f"  {panel.words(value)}", panel.style)
        if panel.best:
            step, best = max(panel.points, key=lambda point: point[1])
            text.append(f"  best {panel.words(best)} at {format_count(step)}", "dim")
    text.truncate(width, overflow="ellipsis")
    low, high = panel.up
    lines = plot(panel.points, width=room, height=height, across=(0.0, span), up=panel.up)
    for number, line in enumerate(lines):
        mark = {0: high, height - 1: low}.get(number)
        text.append(f"\n{'' if mark is None else panel.words(mark):>{_AXIS}}", "dim")
        text.append("┤" if mark is not None else "│", "dim")
        text.append(line, panel.style)
    end = format_count(span)
    text.append(f"\n{'':{_AXIS}} 0{end:>{max(0, room - 1)}}", "dim")
    return text


def _short(value: float) -> str:
    """A number of six characters at most."""
    size = abs(value)
    if 0 < size < 0.1:
        return f"{value:.2g}" if size >= 0.01 else f"{value:.0e}"
    if size >= 1000:
        return format_count(round(size, -len(str(int(size))) + 3)) if value > 0 else f"{value / 1000:.0f}k"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"
