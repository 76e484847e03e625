"""Draws a run's metrics as curves in the terminal, live or once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import format_count, out, printable
from clusterkit.cli.ui.lines import plain_table
from clusterkit.commands.curves import Curves
from clusterkit.results.logs.run_logs import fault_words
from clusterkit.results.metrics import SHORT, MetricRow, last_step, latest, meant, own_names, title_of
from clusterkit.results.series import Series, series
from clusterkit.runs.names import label
from clusterkit.units import format_seconds, plural

_WIDE = 120
"""Minimum number of columns to draw the curves side by side."""
_ONCE_HEIGHT, _LEAST_HEIGHT = 8, 3
"""Height of a curve in lines: when printed once, and the minimum on a live screen."""
_AXIS = 6
"""Width of the numbers beside a curve, in columns."""
_OWN = 3
"""Number of curves for the user's own program: the first metrics it reports."""
_STYLES = ("green", "cyan", "yellow")
_AROUND = 2
"""Lines of a panel besides the curve: the title and the axis."""
_BLANK = 0x2800
"""The braille character without dots."""
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot, by column and by row from the top of a terminal cell, which holds two by four."""


Look = TypeVar("Look")
Draw = Callable[[Look, int, int | None], RenderableType]
"""Draws one state with the given width in columns and height in lines; a height of None is unlimited."""


@dataclass(frozen=True)
class CurvePanel:
    """One curve: its points by step, the range of its axis, and how its values are written."""

    name: str
    points: Sequence[tuple[float, float]]
    up: tuple[float, float]
    words: Callable[[float], str]
    style: str
    best: bool = False
    """Whether higher is better; if so, the title names the highest value."""
    lost_from: int | None = None
    """The step from which no value was finite; None if the last one is."""
    missing: str = "nothing yet"
    """What is shown without a value."""

    @property
    def last(self) -> str:
        """The last value in words; empty if there is none yet."""
        if self.lost_from is not None:
            return "nan"
        return self.words(self.points[-1][1]) if self.points else ""


def show_live(looks: Iterator[Look], draw: Draw[Look]) -> None:
    """Redraws until the run ends or Ctrl-C is pressed; the last view stays on the screen."""
    last = first = next(looks)  # a login asks its questions before the live screen opens
    try:
        with Live(console=out, auto_refresh=False, screen=True) as live:
            for last in itertools.chain([first], looks):
                live.update(draw(last, out.width, out.height - 1), refresh=True)
    finally:
        out.print(draw(last, out.width, out.height - 1))


def show_once(looks: Iterator[Look], draw: Draw[Look]) -> None:
    """Prints each view once."""
    for one in looks:
        out.print(draw(one, out.width, None))


def view(one: Curves, width: int, height: int | None = None, *, metric: str | None = None) -> RenderableType:
    """Builds the view of one run.

    Args:
        one: the run and its metrics.
        width: the terminal's width in columns.
        height: the lines to fill; None if unlimited.
        metric: the one to draw; None draws the main ones.
    """
    shown = panels(one, metric)
    if not shown:
        return Group(
            *_head(one, width), Text("no numbers were logged" if one.over else "no numbers yet", "dim")
        )
    beside = len(shown) if width >= _WIDE else 1
    stacked = -(-len(shown) // beside)
    head = _head(one, width)
    cell = (width - 2 * (beside - 1)) // beside
    span = max((row.step for row in one.rows), default=1)
    lines = _ONCE_HEIGHT
    if height is not None:
        lines = (height - len(head)) // stacked - _AROUND
        lines = max(_LEAST_HEIGHT, min(lines, cell // 3))
    grid = Table.grid(padding=(0, 2))
    for first in range(0, len(shown), beside):
        grid.add_row(*(_draw(panel, span, cell, lines) for panel in shown[first : first + beside]))
    return Group(*head, grid)


def _head(one: Curves, width: int) -> list[Text]:
    head = [_title(one), *_events(one), *(Text(line, style="yellow") for line in fault_words(one.faults)[:2])]
    for text in head:
        text.truncate(width, overflow="ellipsis")
    return head


def _title(one: Curves) -> Text:
    words = [str(one.state.state)]
    step = last_step(one.rows)
    if step is not None:
        total = one.total_steps
        words.append(f"step {format_count(step)}" + (f" of {format_count(total)}" if total else ""))
        if (left := one.state.eta_seconds) is not None and one.state.state is JobState.RUNNING:
            words.append(f"{format_seconds(left)} left")
    if one.synced is not None:
        words.append(f"synced copy of {one.synced:%Y-%m-%d %H:%M}")
    return Text.assemble((label(one.run), "bold"), "  ", ", ".join(words))


def _events(one: Curves) -> list[Text]:
    """Returns the latest event's message; without any metrics, the scheduler's reason."""
    texts = [row.values["message"] for row in one.rows if row.kind == "event" and "message" in row.values]
    if not one.rows and one.state.why:
        texts = [one.state.why]
    return [Text(printable(" ".join(str(texts[-1]).split())), style="dim")] if texts else []


def panels(one: Curves, metric: str | None = None) -> list[CurvePanel]:
    """Selects a run's curves: the wanted metric, or else success, return and speed.

    Of a program of the user's own they are the first of its metrics.
    """
    if metric is not None or not one.run.recipe:
        names = own_names(one.rows)
        shown = names[:_OWN] if metric is None else [meant(metric, names)]
        found = [series(one.rows, name) for name in shown]
        return [_panel(one, values, style) for values, style in zip(found, _STYLES, strict=False)]
    evaluations, training = latest(one.rows, "eval"), latest(one.rows, "train")
    returns = series(evaluations, "return/mean")
    returns = returns if returns.points else _means(training, "return/")
    speed = series(training, "steps_per_second")
    return [
        _panel(one, series(evaluations, "success/mean"), "green"),
        replace(_panel(one, returns, "cyan"), name="return", best=True),
        replace(_panel(one, speed, "yellow"), name="steps/s"),
    ]


def _panel(one: Curves, values: Series, style: str) -> CurvePanel:
    points = values.finite
    title, best = title_of(values.name), values.name in SHORT.values()
    panel = CurvePanel(title, points, _range(points), _short, style, best, lost_from=values.lost_from)
    if values.name.startswith("success/") and panel.up[1] <= 1 and panel.up[0] == 0:
        panel = replace(panel, up=(0.0, 1.0), words=_percent)
    return replace(panel, missing="none") if one.over else panel


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _means(rows: Sequence[MetricRow], prefix: str) -> Series:
    """Averages the values of each step over the tasks; not finite where one of them is not."""
    at: dict[int, list[float]] = {}
    for name in dict.fromkeys(key for row in rows for key in row.values if key.startswith(prefix)):
        for step, value in series(rows, name).points:
            at.setdefault(step, []).append(value)
    return Series(prefix, tuple((step, sum(values) / len(values)) for step, values in sorted(at.items())))


def _range(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    values = [0.0, *(y for _, y in points)]
    low, high = min(values), max(values)
    return low, high if high > low else 1.0


def _draw(panel: CurvePanel, span: float, width: int, height: int) -> Text:
    """Draws a title with the last and best value, the curve between two axes, and the steps below."""
    room = max(1, width - _AXIS - 1)
    text = Text(f"{'':{_AXIS}} ")
    text.append(printable(panel.name), "bold")
    text.append(f"  {panel.last or panel.missing}", panel.style if panel.last else "dim")
    if panel.lost_from is not None:
        text.append(f" since step {format_count(panel.lost_from)}", "dim")
    if panel.points and panel.best:
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


def plot(
    points: Sequence[tuple[float, float]],
    *,
    width: int,
    height: int,
    across: tuple[float, float],
    up: tuple[float, float],
) -> list[str]:
    """Draws a curve in braille dots; returns the lines, top line first.

    Points that share a column of dots are averaged; columns are joined by lines.

    Args:
        points: pairs of x and y, ordered by x, within the ranges.
        width: the plot's width in cells.
        height: the plot's height in cells.
        across: the range of x.
        up: the range of y.
    """
    columns: dict[int, list[float]] = {}
    for x, y in points:
        columns.setdefault(_place(x, across, 2 * width), []).append(y)
    dots = [(x, _place(math.fsum(ys) / len(ys), up, 4 * height)) for x, ys in sorted(columns.items())]
    cells = [[_BLANK] * width for _ in range(height)]
    for (x0, y0), (x1, y1) in zip(dots[:1] + dots, dots, strict=False):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x, y = x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps)
            row = 4 * height - 1 - y
            cells[row // 4][x // 2] |= _BITS[x % 2][row % 4]
    # Some fonts draw the empty braille cell as eight circles.
    return ["".join(" " if cell == _BLANK else chr(cell) for cell in line) for line in cells]


def _place(value: float, span: tuple[float, float], dots: int) -> int:
    """Maps a value to a dot, with 0 at the low end."""
    low, high = span
    share = (value - low) / (high - low) if high > low else 0.5
    return min(dots - 1, max(0, round(share * (dots - 1))))


def _short(value: float) -> str:
    """Formats a number in at most six characters."""
    size = abs(value)
    if 0 < size < 0.1:
        return f"{value:.2g}" if size >= 0.01 else f"{value:.0e}"
    if size >= 1000:
        return format_count(round(size, -len(str(int(size))) + 3)) if value > 0 else f"{value / 1000:.0f}k"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


_LEVELS = " ▁▂▃▄▅▆▇█"


_SPARK = 24
"""Maximum width of a small curve, in columns."""


_LEAST = 8
"""Minimum width; with fewer columns, no small curve is drawn."""


_VALUE, _STEP, _GAP = 7, 5, 2
"""Width in characters of a value, of the steps, and of the gap between columns."""


def view_group(
    looks: Sequence[Curves], width: int, height: int | None, *, metric: str | None = None
) -> RenderableType:
    """Builds one view of several runs; all small curves share one scale."""
    shown = [panels(one, metric) for one in looks]
    names = list(dict.fromkeys(panel.name for mine in shown for panel in mine))[:_OWN]
    span = max((row.step for one in looks for row in one.rows), default=1) or 1
    values = [y for mine in shown for panel in mine if panel.name in names[:1] for _, y in panel.points]
    low, high = min(values, default=0.0), max(values, default=1.0)
    table = plain_table("run", "state", "step", right=("step",))
    while len(names) > 1 and not (_room(looks, names, width) or looks[0].run.recipe):
        names.pop()
    for name in names:
        table.add_column(printable(name), justify="right", no_wrap=True)
    columns = _room(looks, names, width)
    if columns:
        table.add_column(Text("curve", "dim"), no_wrap=True)
    fitting = len(looks) if height is None else max(1, height - 2)
    for one, mine in list(zip(looks, shown, strict=True))[:fitting]:
        found = {panel.name: panel for panel in mine}
        step = last_step(one.rows)
        cells = [found[name].last if name in found else "" for name in names]
        first = found.get(names[0]) if names else None
        small = [_spark(first.points if first else [], span, low, high, columns)] if columns else []
        table.add_row(
            label(one.run), str(one.state.state), "" if step is None else format_count(step), *cells, *small
        )
    hidden = len(looks) - fitting
    more = [Text(f"and {plural(hidden, 'more run')}", "dim")] if hidden > 0 else []
    return Group(table, *more)


def _room(looks: Sequence[Curves], names: Sequence[str], width: int) -> int:
    """Returns the columns available for a small curve; 0 if there are too few."""
    fixed = [
        max(len(label(one.run)) for one in looks),
        max(len(str(one.state.state)) for one in looks),
        _STEP,
    ]
    taken = sum(fixed) + sum(max(_VALUE, len(name)) for name in names) + _GAP * (len(fixed) + len(names))
    room = min(_SPARK, width - taken)
    return room if room >= _LEAST else 0


def _spark(points: Sequence[tuple[float, float]], span: float, low: float, high: float, columns: int) -> Text:
    """Draws the last value in each interval of steps; an interval without a value is blank."""
    levels = [" "] * columns
    for x, y in points:
        place = min(columns - 1, max(0, int(x / span * columns)))
        level = (y - low) / (high - low) if high > low else 0.5
        levels[place] = _LEVELS[1 + round(level * (len(_LEVELS) - 2))]
    return Text("".join(levels), "green")
