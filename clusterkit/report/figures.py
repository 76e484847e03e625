"""Learning curves as PNG and SVG, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ClusterkitError
from clusterkit.report.groups import Group, Point
from clusterkit.report.panels import format_value
from clusterkit.report.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, told apart with every common colour blindness."""

OVERLAID_TASKS = 6
"""Up to so many tasks of one group share one chart; more get a small chart each."""

INK, _SOFT = "#1f2933", "#7b8794"
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,  # a `$` in a name is a dollar
    "text.color": INK,
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.8,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.hashsalt": "clusterkit",  # the same input draws the same file
}
_COLUMNS = 5


def write_figures(groups: Sequence[Group], folder: Path) -> list[Path]:
    """Write curves.png and curves.svg: success and return over environment steps.

    Raises:
        ClusterkitError: matplotlib is not installed.
    """
    tasks = task_names(groups)
    overlaid = len(groups) == 1 and len(tasks) <= OVERLAID_TASKS
    rows = 0 if overlaid else math.ceil(len(tasks) / _COLUMNS)

    def draw(figure: Figure) -> None:
        if overlaid:
            _draw_overlaid(figure, groups[0])
        else:
            _draw_grid(figure, groups, tasks, rows)

    return save_figure(draw, (11, 4.4 + 1.55 * rows), folder / "curves")


def save_figure(draw: Callable[[Figure], None], inches: tuple[float, float], stem: Path) -> list[Path]:
    """Let a figure be drawn and save it as PNG and as SVG; the same input gives the same files.

    Raises:
        ClusterkitError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.text import Text
    except ImportError:
        raise ClusterkitError(
            "matplotlib is not installed here, so no PNG and no SVG was drawn",
            hint="python -m pip install 'clusterkit[train]'",
        ) from None
    with rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        for text in figure.findobj(Text):
            text.set_text(visible(text.get_text()))
        paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.set_layout_engine("none")  # all stays where it is: to find that out takes a third of the time
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def task_names(groups: Sequence[Group]) -> list[str]:
    """The tasks of all groups, each once."""
    return list(dict.fromkeys(task for group in groups for task in group.tasks))


def interval_meaning(groups: Sequence[Group]) -> str:
    """What the bands are, in words."""
    if all(len(group.runs) == 1 for group in groups):
        return "band: 95% Wilson interval over the evaluation episodes"
    counts = sorted({len(group.runs) for group in groups if len(group.runs) > 1})
    return f"band: 95% Student interval over {' or '.join(map(str, counts))} runs"


def _draw_overlaid(figure: Figure, group: Group) -> None:
    """One group, few tasks: every task in one chart."""
    success, returns = figure.subplots(1, 2)
    for number, task in enumerate(group.tasks):
        colour = PALETTE[number % len(PALETTE)]
        _draw(success, group.curve(f"success/{task}"), colour, label=task, width=1.3, band=0.0)
        _draw(returns, group.curve(f"return/{task}"), colour, width=1.3, band=0.0)
    _draw(success, group.curve("success/mean"), INK, label="mean", width=2.6, band=0.14)
    _draw(returns, group.curve("return/mean"), INK, width=2.6, band=0.14)
    _finish([success], [returns], [group], f"{group.label}: evaluation success")
    figure.legend(loc="outside lower center", ncols=7, frameon=False)


def _draw_grid(figure: Figure, groups: Sequence[Group], tasks: Sequence[str], rows: int) -> None:
    """Several groups or many tasks: the means on top, a small chart for each task below."""
    upper: Figure | SubFigure = figure
    small: list[Axes] = []
    if rows:
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[4.0, 1.55 * rows + 0.4]).flat
        charts = lower.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
        small = list(charts.flat)
        for unused in small[len(tasks) :]:
            unused.set_axis_off()
    success, returns = upper.subplots(1, 2)
    for number, group in enumerate(groups):
        colour = PALETTE[number % len(PALETTE)]
        _draw(success, group.curve("success/mean"), colour, label=group.label, width=2.4, band=0.16)
        _draw(returns, group.curve("return/mean"), colour, width=2.4, band=0.16)
        for axes, task in zip(small, tasks, strict=False):
            _draw(axes, group.curve(f"success/{task}"), colour, width=1.4, band=0.16)
            axes.set_title(task, loc="left", fontsize=8, pad=2)
    title = "evaluation success, mean over tasks"
    _finish(
        [success, *small[: len(tasks)]],
        [returns],
        groups,
        title if len(groups) > 1 else f"{groups[0].label}: {title}",
    )
    for axes in small:
        axes.tick_params(labelsize=7)
    if len(groups) > 1:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)


def _draw(
    axes: Axes, curve: Sequence[Point], colour: str, *, width: float, band: float, label: str = ""
) -> None:
    """One curve and its interval."""
    steps = [point.step for point in curve]
    single = "o" if len(curve) == 1 else ""
    axes.plot(
        steps,
        [point.value for point in curve],
        color=colour,
        linewidth=width,
        marker=single,
        label=label,
        clip_on=False,
        solid_capstyle="round",
    )
    if band:
        within = [(point.step, point.interval) for point in curve if point.interval is not None]
        axes.fill_between(
            [step for step, _ in within],
            [interval.low for _, interval in within],
            [interval.high for _, interval in within],
            color=colour,
            alpha=band,
            linewidth=0,
        )


def _finish(success: Sequence[Axes], returns: Sequence[Axes], groups: Sequence[Group], title: str) -> None:
    """Axes, scales and titles."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    last = max((run.last_step for group in groups for run in group.runs), default=1)
    for axes in (*success, *returns):
        axes.set_xlim(0, max(1, last))
        axes.xaxis.set_major_locator(MaxNLocator(4 if axes in success[1:] else 6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: format_value(step)))
    for axes in success:
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.5, 1] if axes is not success[0] else [0, 0.2, 0.4, 0.6, 0.8, 1])
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    for axes in returns:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    for axes, text in ((success[0], title), (returns[0], "return")):
        axes.set_title(text, loc="left", fontweight="bold")
        axes.set_xlabel("environment steps")
    success[0].set_xlabel(f"environment steps; {interval_meaning(groups)}")
