"""What programs of the user's own have logged, as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.report import charts
from clusterkit.report.figures import INK, PALETTE, interval_meaning, save_figure
from clusterkit.report.groups import Group
from clusterkit.report.panels import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


def write_own_figure(groups: Sequence[Group], folder: Path, metric: str | None = None) -> list[Path]:
    """Write curves.png and curves.svg: returns, where they are logged, and every number of the program.

    Raises:
        ClusterkitError: matplotlib is not installed.
    """
    plots = [*charts.learning(groups), *charts.own(groups, metric)]
    columns = min(_COLUMNS, len(plots))
    rows = math.ceil(len(plots) / columns)

    def draw(figure: Figure) -> None:
        cells = list(figure.subplots(rows, columns, squeeze=False).flat)
        for cell in cells[len(plots) :]:
            cell.set_axis_off()
        for axes, plot in zip(cells, plots, strict=False):
            _draw(axes, plot)
        handles = {line.get_label(): line for axes in cells for line in axes.get_lines()}
        if len(handles) > 1:
            banded = any(point.interval for plot in plots for line in plot.lines for point in line.points)
            figure.legend(
                handles=list(handles.values()),
                loc="outside lower center",
                ncols=5,
                frameon=False,
                title=interval_meaning(groups) if banded else None,
            )

    return save_figure(draw, (max(5.5, 3.7 * columns), 0.6 + 2.6 * rows), folder / "curves")


def _draw(axes: Axes, plot: charts.Plot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for line in plot.lines:
        axes.plot(
            [point.step for point in line.points],
            [point.value for point in line.points],
            color=INK if line.colour == charts.INK else PALETTE[line.colour],
            linewidth=2.4 if line.thick else 1.2,
            marker="o" if len(line.points) == 1 else "",
            label=line.label,
            clip_on=False,
        )
        within = [(point.step, point.interval) for point in line.points if point.interval is not None]
        axes.fill_between(
            [step for step, _ in within],
            [interval.low for _, interval in within],
            [interval.high for _, interval in within],
            color=INK if line.colour == charts.INK else PALETTE[line.colour],
            alpha=0.14,
            linewidth=0,
        )
    axes.set_title(plot.title, loc="left", fontweight="bold")
    axes.set_xlim(0, max(1, plot.end))
    axes.set_xlabel(plot.axis.name)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: format_value(step)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
