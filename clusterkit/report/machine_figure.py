"""Speed, use of the machine, the time split and plasticity as PNG and SVG, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.report import charts
from clusterkit.report.bars import Bars, time_split
from clusterkit.report.figures import INK, PALETTE, save_figure
from clusterkit.report.groups import Group
from clusterkit.report.measured import Measured
from clusterkit.report.panels import format_value
from clusterkit.report.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_REST = "#ccd3da"


def write_machine_figure(
    groups: Sequence[Group], measured: Sequence[Sequence[Measured]], folder: Path
) -> list[Path]:
    """Write machine.png and machine.svg; nothing when no run has logged anything of the kind.

    Args:
        groups: of runs.
        measured: for each run of each group.
        folder: to write to.

    Raises:
        ClusterkitError: matplotlib is not installed.
    """
    plots = [*charts.machine(groups), *charts.health(groups)]
    split = time_split(groups, measured)
    count = len(plots) + (split is not None)
    if not count:
        return []
    rows = math.ceil(count / _COLUMNS)

    def draw(figure: Figure) -> None:
        cells = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
        for unused in cells[count:]:
            unused.set_axis_off()
        for axes, plot in zip(cells, plots, strict=False):
            _draw_plot(axes, plot)
        if split:
            _draw_split(cells[len(plots)], split)
        handles, labels = cells[0].get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))
        if len(named) > 1:
            figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, frameon=False)

    return save_figure(draw, (11, 2.6 * rows + 0.4), folder / "machine")


def _draw_plot(axes: Axes, plot: charts.Plot) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, PercentFormatter

    for line in plot.lines:
        axes.plot(
            [point.step for point in line.points],
            [point.value for point in line.points],
            color=INK if line.colour >= len(PALETTE) else PALETTE[line.colour],
            linewidth=1.3,
            marker="o" if len(line.points) == 1 else "",
            label=line.label,
        )
    for at, _ in plot.starts:
        axes.axvline(at, color=INK, linewidth=0.8, linestyle="--")
    end = max(1.0, plot.end)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.02 if plot.rate else None)
    axes.xaxis.set_major_locator(FixedLocator(plot.axis.ticks(end)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plot.axis.show(x)))
    axes.yaxis.set_major_formatter(
        PercentFormatter(1, decimals=0)
        if plot.rate or plot.percent
        else FuncFormatter(lambda y, _: format_value(y))
    )
    axes.set_title(plot.title, loc="left", fontweight="bold")
    axes.set_xlabel(plot.axis.name, fontsize=8)


def _draw_split(axes: Axes, split: Bars) -> None:
    names = dict(split.legend)
    told: set[str] = set()
    for row, bar in enumerate(split.bars):
        for piece in bar.pieces:
            colour = _REST if piece.colour == "rest" else PALETTE[int(piece.colour[1:])]
            label = names[piece.colour] if piece.colour not in told else None
            told.add(piece.colour)
            axes.barh(row, piece.width, left=piece.left, color=colour, label=label)
    axes.grid(False)
    axes.set_yticks(range(len(split.bars)), [visible(bar.label) for bar in split.bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_title(split.title, loc="left", fontweight="bold")
    axes.tick_params(labelsize=7)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=7, frameon=False)
