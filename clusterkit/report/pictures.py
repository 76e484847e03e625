"""Draws the pictures beside a report's page: curves and machine, each as PNG and SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from clusterkit.report import charts
from clusterkit.report.advice import GroupAdvice
from clusterkit.report.bars import bar_charts
from clusterkit.report.chart_data import BarChart, Chart
from clusterkit.report.drawing import COLOURS, STYLE, bars_height, draw, make_visible, place
from clusterkit.report.groups import ReportGroup
from clusterkit.report.words import shortened

_EM = 9.0
"""Text size in points."""
_STYLE = STYLE | {"font.size": _EM, "lines.linewidth": 1.3, "lines.markersize": 4}
_WIDTH = 800.0
_LEGEND = 150
"""Most characters of a legend line."""


def write_curves(groups: Sequence[ReportGroup], folder: Path, metric: str | None = None) -> list[Path]:
    """Write curves.png and curves.svg: success and return, over steps.

    For programs without success rates, or with a chosen metric, all program-specific numbers are drawn, too.
    """
    curves = charts.learning(groups)
    if metric or not any(group.final("success/mean") for group in groups):
        drawn = [*curves, *charts.own(groups, metric)]
    else:
        drawn = [*curves, *charts.by_task(groups)]
    banded = any(point.interval for chart in drawn for curve in chart.curves for point in curve.points)
    label = f"{shortened(groups[0].label)}; " if len(groups) == 1 else ""
    return _save_sheet(
        drawn, folder / "curves", caption=label + charts.interval_meaning(groups) if banded else ""
    )


def write_machine(groups: Sequence[ReportGroup], advice: Sequence[GroupAdvice], folder: Path) -> list[Path]:
    """Write machine.png and machine.svg: speed, use of the machine, plasticity, attempts and the time split.

    Nothing is written if no run has logged such data.
    """
    drawn: list[Chart | BarChart] = [*charts.machine(groups), *charts.health(groups)]
    drawn += bar_charts(advice)
    return _save_sheet(drawn, folder / "machine") if drawn else []


def _save_sheet(charts: Sequence[Chart | BarChart], stem: Path, *, caption: str = "") -> list[Path]:
    """Draw charts side by side on one sheet, in their order; save it as PNG and as SVG.

    Args:
        charts: at least one.
        stem: the files' path without a suffix.
        caption: a line below them.
    """
    rows = list(_rows(charts))
    heights = [_row_height(columns, row) for columns, row in rows]
    legend = {
        name: colour for chart in charts if isinstance(chart, Chart) for name, colour in chart.legend.items()
    }
    columns_of_legend = max(1, min(7, _LEGEND // max(map(len, legend), default=1)))
    below = 2 * _EM * (math.ceil(len(legend) / columns_of_legend) + bool(caption)) + _EM
    top = below + sum(heights)
    with rc_context(_STYLE):
        figure = Figure((_WIDTH / 72, top / 72))
        for (columns, row), height in zip(rows, heights, strict=True):
            top, width = top - height, _WIDTH / columns
            for number, chart in enumerate(row):
                axes = place(figure, chart, (number * width, top, width, height), _EM, titled=True)
                draw(axes, chart)
                _add_title(axes, chart, width)
        figure.legend(
            handles=[
                Line2D([], [], color=COLOURS[colour], linewidth=2.4, label=shortened(name))
                for name, colour in legend.items()
            ],
            loc="lower center",
            ncols=columns_of_legend,
            title=caption or None,
        )
        make_visible(figure)
        paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _rows(charts: Sequence[Chart | BarChart]) -> Iterator[tuple[int, Sequence[Chart | BarChart]]]:
    """The number of columns of each row, and its charts."""
    for most, alike in itertools.groupby(charts, _most_columns):
        those = list(alike)
        columns = min(most, len(those))
        yield from ((columns, those[start : start + columns]) for start in range(0, len(those), columns))


def _most_columns(chart: Chart | BarChart) -> int:
    return 1 if isinstance(chart, BarChart) else 5 if chart.small else 3


def _row_height(columns: int, row: Sequence[Chart | BarChart]) -> float:
    (first, *_) = row
    if isinstance(first, BarChart):
        return bars_height(first, _EM) + 3 * _EM
    return 125.0 if first.small else 210.0 if columns > 2 else 310.0


def _add_title(axes: Axes, chart: Chart | BarChart, width: float) -> None:
    axes.set_title(fill(shortened(chart.title), int(1.6 * width / _EM)))
    if isinstance(chart, Chart) and chart.small:
        axes.title.set_fontsize("small")
        axes.tick_params(labelsize="small")
    if isinstance(chart, BarChart):
        handles = [Patch(color=COLOURS[colour], label=name) for name, colour in chart.legend.items()]
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=6, borderpad=0)
