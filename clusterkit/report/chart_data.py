"""Charts as plain data: curves with intervals, and bars. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from clusterkit.report.groups import Point
from clusterkit.units import format_duration, format_seconds

INK = "ink"
"""The colour of text, and of a mean among other curves."""
SOFT = "soft"
"""The colour of single runs behind their mean, or among more than there are colours."""
CURVE_COLOURS = 6
_BAND_SPACE = 0.5
"""Share of the values' range by which bands may extend the y axis at each end."""
_MOST_LABELLED = 10
"""Most bars with their names beside them; more are thin, and a pointer shows their names."""
_NARROWEST = 1e-11
"""Relative distance below which values coincide on an axis."""
_TIME_STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)

_CONTROLS = (*(code for code in range(32) if chr(code) not in "\t\n"), *range(0x7F, 0xA0))
_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_UNSEEN = dict.fromkeys((*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000)), 0xFFFD)
_LONGEST = 60
"""Most characters of a name in a picture."""


class Scale(Enum):
    """Where the y axis starts and ends."""

    AS_FOUND = auto()
    FROM_ZERO = auto()
    """From zero, so that small changes look small."""
    SHARES = auto()
    """From zero, in percent."""
    RATES = auto()
    """From 0 to 100%."""


@dataclass(frozen=True)
class XAxis:
    """The x axis."""

    name: str
    show: Callable[[float], str]
    """The label of a tick."""
    at: Callable[[float], str]
    """The text for one position."""
    ticks: Callable[[float], list[float]] | None = None
    """Round positions from 0 to the end; None: those that are round in tens."""


@dataclass(frozen=True)
class Curve:
    """One line, with a band where its points have intervals."""

    label: str
    colour: str
    points: Sequence[Point]
    thick: bool = False
    faint: bool = False
    """Whether it is one run of many: a thin line without marks."""


@dataclass(frozen=True)
class Chart:
    """Curves on common axes."""

    title: str
    curves: tuple[Curve, ...]
    end: float
    """Right end of the x axis."""
    axis: XAxis
    scale: Scale = Scale.AS_FOUND
    small: bool = False
    """Whether it is one of many: without marks and axis name."""
    starts: tuple[tuple[float, str], ...] = ()
    """(x, text) of later attempts."""

    @property
    def name(self) -> str:
        """Alternative text for readers who cannot see it."""
        return f"{self.title} over {self.axis.name}"

    @property
    def legend(self) -> dict[str, str]:
        """Colours by label; empty if there is nothing to distinguish."""
        named = {
            "single runs" if curve.colour == SOFT else curve.label: curve.colour for curve in self.curves
        }
        return named if len(named) > 1 and not self.small else {}

    @property
    def limits(self) -> tuple[float, float]:
        """Lower and upper end of the y axis: the values', and some more where bands reach farther."""
        if self.scale is Scale.RATES:
            return 0.0, 1.0
        points = [point for curve in self.curves for point in curve.points]
        values = [point.value for point in points if math.isfinite(point.value)]
        bounds = [bound for point in points for bound in point.interval or () if math.isfinite(bound)]
        low, high = min(values, default=0.0), max(values, default=1.0)
        space = _BAND_SPACE * (high - low)
        low, high = max(low - space, min([low, *bounds])), min(high + space, max([high, *bounds]))
        if self.scale is not Scale.AS_FOUND or 0 < low < high / 2:
            low = min(0.0, low)  # a zero nearby belongs to the picture
        if high - low < _NARROWEST:
            high = low + (abs(low) if abs(low) > _NARROWEST else 1.0)
        return low, high

    def show(self, value: float) -> str:
        """Returns the text of a value on the y axis."""
        if self.scale is Scale.RATES:
            return f"{value:.0%}"
        return f"{100 * value:.3g}%" if self.scale is Scale.SHARES else format_value(value)

    def describe(self, curve: Curve, point: Point) -> str:
        """Returns the hover text of a point."""
        between = point.interval
        interval = f" ({self.show(between.low)} to {self.show(between.high)})" if between else ""
        return f"{curve.label}: {self.show(point.value)}{interval} {self.axis.at(point.step)}"


@dataclass(frozen=True)
class Stretch:
    """A segment of a bar, in the units of its axis."""

    start: float
    length: float
    colour: str
    text: str
    """The hover text."""
    label: str = ""
    """The text inside it, if there is space."""


@dataclass(frozen=True)
class RunBar:
    """One run."""

    label: str
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True)
class BarChart:
    """One bar per run, stacked vertically."""

    title: str
    bars: tuple[RunBar, ...]
    end: float
    """Right end of the axis."""
    legend: dict[str, str]
    """Colours by label."""
    axis: XAxis | None = None
    """None: without ticks."""

    @property
    def name(self) -> str:
        """Alternative text for readers who cannot see it."""
        return self.title

    @property
    def labelled(self) -> bool:
        """Whether the names of the runs stand above their bars."""
        return len(self.bars) <= _MOST_LABELLED


def visible(text: str) -> str:
    """Returns a text with U+FFFD in place of control characters, with which a run could mislead readers."""
    return text.translate(_UNSEEN)


def shortened(name: str) -> str:
    """Returns a name shortened to fit into a picture."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def curve_colour(number: int) -> str:
    """Returns the colour of the n-th curve."""
    return f"c{number % CURVE_COLOURS}"


def time_ticks(end: float) -> list[float]:
    """Returns about four round positions in 0..end seconds."""
    days = 86400 * max(1, math.ceil(end / 4 / 86400))
    step = next((size for size in _TIME_STEPS if size >= end / 4), days)
    return [float(number * step) for number in range(int(end / step) + 1)]


def format_value(value: float) -> str:
    """Returns a number of any size with three digits: "0.25", "950", "256k", "12.3M"."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


STEPS = XAxis("environment steps", format_value, lambda step: f"at {step:,.0f} steps")
TIME = XAxis(
    "time since the first start",
    lambda seconds: format_duration(round(seconds)),
    lambda seconds: f"after {format_seconds(seconds)}",
    time_ticks,
)
