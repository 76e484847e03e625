"""The geometry of the page's charts: numbers in, SVG coordinates out; the template draws them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clusterkit.report.groups import Point
from clusterkit.units import format_seconds

LEFT, RIGHT, TOP, BOTTOM = 46.0, 18.0, 14.0, 24.0
"""Margins around the plot area, for the tick labels; SVG user units."""
_NAMED, _NAME = 200.0, 16.0
"""From which height on a chart names its x axis, and the room that this takes."""

_NARROWEST = 1e-11
"""Values closer together than this are one value on an axis, whose ticks have twelve decimals."""
_TIME_STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Mark:
    """A data point with the text that a pointer shows."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Line:
    """One curve."""

    label: str
    colour: int
    """Index into the palette."""
    points: str
    """`x,y x,y ...` of a polyline."""
    band: str
    """The same of the interval's polygon; empty without one."""
    marks: tuple[Mark, ...]
    thick: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    width: float
    height: float
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    starts: tuple[Tick, ...] = ()
    """Where later attempts of a run started."""
    axis: str = ""
    """What the x axis shows."""

    @property
    def left(self) -> float:
        """Left edge of the plot area."""
        return LEFT

    @property
    def right(self) -> float:
        """Right edge of the plot area."""
        return self.width - RIGHT

    @property
    def top(self) -> float:
        """Upper edge of the plot area."""
        return TOP

    @property
    def bottom(self) -> float:
        """Lower edge of the plot area."""
        return _bottom(self.height)


@dataclass(frozen=True)
class Series:
    """A curve before it has coordinates."""

    label: str
    colour: int
    points: Sequence[Point]
    thick: bool = False


@dataclass(frozen=True)
class Axis:
    """What the x axis shows."""

    name: str
    ticks: Callable[[float], list[float]]
    """Round values from 0 to the end."""
    show: Callable[[float], str]
    at: Callable[[float], str]
    """Words for one position."""


def _bottom(height: float) -> float:
    return height - BOTTOM - (_NAME if height >= _NAMED else 0.0)


def time_ticks(end: float) -> list[float]:
    """About four round positions in 0..end seconds."""
    step = next((size for size in _TIME_STEPS if size >= end / 4), 0.0)
    step = step or 86400 * nice_ticks(0, end / 86400, 4)[1]
    return [number * step for number in range(int(end / step) + 1)]


def format_time(seconds: float) -> str:
    """A tick of a time axis: "0", "30s", "5m", "1h30", "2d"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24 and not minute and not second:
        days, hour = divmod(hours, 24)
        return f"{days}d{hour:02}h" if hour else f"{days}d"
    if hours:
        return f"{hours}h{minute:02}" if minute else f"{hours}h"
    if minute:
        return f"{minute}m{second:02}" if second else f"{minute}m"
    return f"{second}s" if second else "0"


STEPS = Axis(
    "environment steps",
    lambda end: nice_ticks(0, end, 4),
    lambda step: format_value(step),
    lambda step: f"at {step:,.0f} steps",
)
TIME = Axis(
    "time since the first start", time_ticks, format_time, lambda seconds: f"after {format_seconds(seconds)}"
)


def panel(
    title: str,
    series: Sequence[Series],
    *,
    width: float,
    height: float,
    rate: bool = False,
    from_zero: bool = False,
    percent: bool = False,
    end: float,
    axis: Axis = STEPS,
    starts: Sequence[tuple[float, str]] = (),
) -> Panel:
    """Lay out one chart.

    Args:
        title: what is plotted.
        series: the curves, drawn in order.
        width: SVG user units.
        height: SVG user units.
        rate: the values are rates; the axis runs from 0 to 100%.
        from_zero: the axis starts at 0, so that small changes look small.
        percent: the values are shares, on an axis that ends where they do.
        end: right end of the x axis.
        axis: what x means.
        starts: (x, text) of later attempts.
    """
    values = [
        value
        for line in series
        for point in line.points
        for value in (point.value, *(point.interval or ()))
        if math.isfinite(value)
    ]
    low, high = (0.0, 1.0) if rate else (min(values, default=0.0), max(values, default=1.0))
    if from_zero or 0 < low < high / 2:
        low = 0.0  # a zero nearby belongs to the picture
    if high - low < _NARROWEST:
        high = low + (abs(low) if abs(low) > _NARROWEST else 1.0)
    y_values = [0, 0.25, 0.5, 0.75, 1] if rate else nice_ticks(low, high, 4)
    low, high = min(low, y_values[0]), max(high, y_values[-1])
    x_values = axis.ticks(max(1.0, end))
    right, bottom = width - RIGHT, _bottom(height)

    def x(step: float) -> float:
        return round(LEFT + (right - LEFT) * step / max(1.0, end), 2)

    def y(value: float) -> float:
        return round(bottom - (bottom - TOP) * (value - low) / (high - low), 2)

    def show(value: float) -> str:
        return f"{value:.0%}" if rate or percent else format_value(value)

    def line(one: Series) -> Line:
        within = [(point, point.interval) for point in one.points if point.interval is not None]
        outline = [(x(p.step), y(i.high)) for p, i in within] + [
            (x(p.step), y(i.low)) for p, i in reversed(within)
        ]
        marks = tuple(Mark(x(p.step), y(p.value), _describe(one.label, p, show, axis)) for p in one.points)
        return Line(
            label=one.label,
            colour=one.colour,
            points=_join([(mark.x, mark.y) for mark in marks]),
            band=_join(outline) if len(within) > 1 else "",
            marks=marks,
            thick=one.thick,
        )

    return Panel(
        title=title,
        width=width,
        height=height,
        lines=tuple(map(line, series)),
        x_ticks=tuple(Tick(x(step), axis.show(step)) for step in x_values),
        y_ticks=tuple(Tick(y(value), show(value)) for value in y_values),
        starts=tuple(Tick(x(step), text) for step, text in starts),
        axis=axis.name,
    )


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round values within low..high (low < high), ascending."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def format_value(value: float) -> str:
    """A number of any size in three digits: "0.25", "950", "256k", "12.3M"."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def _describe(label: str, point: Point, show: Callable[[float], str], axis: Axis) -> str:
    interval = f" ({show(point.interval.low)} to {show(point.interval.high)})" if point.interval else ""
    return f"{label}: {show(point.value)}{interval} {axis.at(point.step)}"


def _join(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
