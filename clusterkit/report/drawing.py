"""Draws charts on matplotlib's axes, deterministically, for the page and for pictures."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from clusterkit.report.chart_data import INK, BarChart, Chart, Curve, Scale, shortened, visible

COLOURS = {
    "c0": "#0072b2",
    "c1": "#d55e00",
    "c2": "#009e73",
    "c3": "#cc79a7",
    "c4": "#e69f00",
    "c5": "#56b4e9",
    INK: "#1f2933",
    "soft": "#5f6c7b",
    "rule": "#e4e7eb",
    "rest": "#ccd3da",
    "warn": "#a33c00",
    "on": "#ffffff",
}
"""Okabe and Ito's colours for curves, which remain distinct under every common colour blindness.

A page has a CSS variable for each name, with another colour in dark mode.
"""
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "text.parse_math": False,  # a `$` in a name is a dollar
    "text.color": COLOURS[INK],
    "axes.edgecolor": COLOURS["soft"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": COLOURS["rule"],
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.markeredgewidth": 0,
    "lines.solid_capstyle": "round",
    "xtick.bottom": False,
    "ytick.left": False,
    "xtick.labelcolor": COLOURS["soft"],
    "ytick.labelcolor": COLOURS["soft"],
    "svg.hashsalt": "clusterkit",  # the same input draws the same file
}
HOVER = "hover"
"""Id of elements with a hover text."""
_OUTERMOST = 0.97
"""From this share of the axis on, a tick's label would reach over its end."""
_FEW = 25
"""Most points of a curve with visible marks; more have marks only for hovering."""


def place(
    figure: Figure,
    chart: Chart | BarChart,
    box: tuple[float, float, float, float],
    em: float,
    *,
    titled: bool = False,
) -> Axes:
    """Places axes in a box (left, bottom, width, height), with space for their labels."""
    left, right, top, bottom = 0.5 * em, 0.5 * em, 0.0, _below_bars(chart, em)
    if isinstance(chart, Chart):
        left, right, top, bottom = 3.8 * em, 1.5 * em, 1.2 * em, (2 if chart.small else 3.3) * em
    top += 2 * em * titled
    x, y, width, height = box
    whole_width, whole_height = (72 * inches for inches in figure.get_size_inches())
    axes = figure.add_axes(
        (
            (x + left) / whole_width,
            (y + bottom) / whole_height,
            (width - left - right) / whole_width,
            (height - bottom - top) / whole_height,
        )
    )
    axes.patch.set_visible(False)
    return axes


def bars_height(chart: BarChart, em: float) -> float:
    """Returns the height of a box for bars and the ticks below, in points."""
    return (3.5 if chart.labelled else 1.0) * em * len(chart.bars) + _below_bars(chart, em)


def make_visible(figure: Figure) -> None:
    """Replaces control characters in every text of a figure."""
    for text in figure.findobj(Text):
        text.set_text(visible(text.get_text()))


def draw(axes: Axes, chart: Chart | BarChart) -> list[str]:
    """Draws a chart; returns hover texts in the order in which matplotlib writes their elements."""
    end = max(1.0, chart.end)
    axes.set_xlim(0, end)
    if chart.axis is None:
        axes.xaxis.set_visible(False)
    else:
        ticks = chart.axis.ticks
        axes.xaxis.set_major_locator(
            FixedLocator(ticks(end)) if ticks else MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        )
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: chart.axis.show(x) if chart.axis else ""))
        if isinstance(chart, BarChart):
            _keep_inside(axes, end)
    return _draw_curves(axes, chart, end) if isinstance(chart, Chart) else _draw_bars(axes, chart)


def _keep_inside(axes: Axes, end: float) -> None:
    """Aligns the outer tick labels of bars, which reach from edge to edge, with the ends of their axis."""
    for at, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        if at in (0, end) or at > _OUTERMOST * end:
            label.set_horizontalalignment("left" if at == 0 else "right")


def _draw_curves(axes: Axes, chart: Chart, end: float) -> list[str]:
    low, high = chart.limits
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(
        FixedLocator([0, 0.25, 0.5, 0.75, 1])
        if chart.scale is Scale.RATES
        else MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: chart.show(y)))
    texts = [text for _, text in chart.starts]
    for at, _ in chart.starts:
        axes.axvline(at, color=COLOURS["soft"], linestyle="--", gid=HOVER)
    few = max(len(curve.points) for curve in chart.curves) < _FEW
    for curve in chart.curves:
        steps = [_inside(0, point.step, end) for point in curve.points]
        values = [_inside(low, point.value, high) for point in curve.points]
        colour = COLOURS[curve.colour]
        if curve.faint and len(steps) > 1:
            texts.append(curve.label)
            axes.plot(steps, values, color=colour, alpha=0.5, linewidth=1, gid=HOVER)
            continue
        marked = len(steps) == 1 or not chart.small
        texts += [chart.describe(curve, point) for point in curve.points if marked]
        (line,) = axes.plot(
            steps,
            values,
            color=colour,
            marker="o" if marked else "",
            markerfacecolor=to_rgba(colour, 1.0 if few or len(steps) == 1 else 0.0),
            clip_on=False,
        )
        if curve.thick:
            line.set_linewidth(1.7 * line.get_linewidth())
        _draw_band(axes, curve)
    if not chart.small:
        axes.set_xlabel(chart.axis.name)
    return texts


def _draw_band(axes: Axes, curve: Curve) -> None:
    """Draws the interval at each point, after the axes' limits are set."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    within = [(_inside(left, point.step, right), point.interval) for point in curve.points if point.interval]
    upper = [(step, _inside(low, interval.high, high)) for step, interval in within]
    lower = [(step, _inside(low, interval.low, high)) for step, interval in within]
    if len(within) > 1:
        outline = [*upper, *reversed(lower)]
        axes.fill(*zip(*outline, strict=True), color=COLOURS[curve.colour], alpha=0.17, linewidth=0)


def _draw_bars(axes: Axes, chart: BarChart) -> list[str]:
    """Draws each bar below its run's name, so that a long name takes no space from them."""
    axes.set_ylim(len(chart.bars), 0)
    axes.yaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    middle, thickness = (0.72, 0.5) if chart.labelled else (0.5, 0.8)
    for row, bar in enumerate(chart.bars):
        if chart.labelled:
            axes.text(0, row + 0.4, shortened(bar.label), gid=HOVER)
        for stretch in bar.stretches:
            colour = COLOURS[stretch.colour]
            axes.barh(
                row + middle,
                stretch.length,
                thickness,
                stretch.start,
                color=colour,
                edgecolor=COLOURS["on"],
                gid=HOVER,
            )
            if stretch.label and chart.labelled:
                ink = COLOURS[INK if stretch.colour == "rest" else "on"]
                centre = stretch.start + stretch.length / 2
                axes.text(centre, row + middle, stretch.label, color=ink, ha="center", va="center_baseline")
    if not chart.labelled:
        return [f"{bar.label}: {stretch.text}" for bar in chart.bars for stretch in bar.stretches]
    stretches = [stretch.text for bar in chart.bars for stretch in bar.stretches]
    return [*stretches, *(bar.label for bar in chart.bars)]


def _below_bars(chart: Chart | BarChart, em: float) -> float:
    return 2.0 * em if chart.axis else 0.0


def _inside(low: float, value: float, high: float) -> float:
    """Returns the value clipped to the drawn range, whatever a run logged."""
    return min(high, max(low, value))
