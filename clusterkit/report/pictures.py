"""Draws a report's pictures: those in its page as SVG elements, those beside it as PNG and SVG files.

No display is needed.
"""

from __future__ import annotations

import html
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import fill

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from clusterkit.report import charts
from clusterkit.report.advice import GroupAdvice
from clusterkit.report.bars import bar_charts
from clusterkit.report.chart_data import BarChart, Chart, shortened, visible
from clusterkit.report.drawing import COLOURS, HOVER, STYLE, bars_height, draw, make_visible, place
from clusterkit.report.groups import ReportGroup

_EM = 9.0
"""Text size of files in points."""
_STYLE = STYLE | {"font.size": _EM, "lines.linewidth": 1.3, "lines.markersize": 4}
_WIDTH = 800.0
_LEGEND = 150
"""Most characters of a legend line."""
_PAGE_EM = 12.0
"""Text size of elements in points, which are SVG's user units here."""
_RADIUS = 2.5
"""Radius of a mark."""
_WIDE, _SMALL = (620.0, 300.0), (260.0, 150.0)
"""Size of a chart."""
_PAGE_STYLE = STYLE | {
    "font.size": _PAGE_EM,
    "lines.linewidth": 1.8,
    "lines.markersize": 2 * _RADIUS,
    "svg.fonttype": "none",
}
_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_COLOUR = re.compile("#[0-9a-f]{6}")
_UNWANTED = re.compile(
    r' (?:id|clip-path|transform)="[^"]*"|(?:font-size|font-family|stroke-linejoin):[^;"]*;? ?'
)
_DECIMALS = re.compile(r"(?<=\.\d\d)\d+")
_MARK = re.compile(r'<use xlink:href="[^"]*" x=("[^"]*") y=("[^"]*")(.*?)/>')


def write_curves(groups: Sequence[ReportGroup], folder: Path, metric: str | None = None) -> list[Path]:
    """Writes curves.png and curves.svg: success and return, over steps; nothing without any.

    For programs without success rates, or with a chosen metric, all program-specific numbers are drawn, too.
    """
    curves = charts.learning(groups)
    if metric or not any(group.final("success/mean") for group in groups):
        drawn = [*curves, *charts.own(groups, metric)]
    else:
        drawn = [*curves, *charts.by_task(groups)]
    banded = any(point.interval for chart in drawn for curve in chart.curves for point in curve.points)
    label = f"{shortened(groups[0].label)}; " if len(groups) == 1 else ""
    caption = label + charts.interval_meaning(groups) if banded else ""
    return _save_sheet(drawn, folder / "curves", caption=caption) if drawn else []


def write_machine(groups: Sequence[ReportGroup], advice: Sequence[GroupAdvice], folder: Path) -> list[Path]:
    """Writes machine.png and machine.svg: speed, use of the machine, plasticity, attempts and the time split.

    Nothing is written if no run has logged such data.
    """
    drawn: list[Chart | BarChart] = [*charts.machine(groups), *charts.health(groups)]
    drawn += bar_charts(advice)
    return _save_sheet(drawn, folder / "machine") if drawn else []


def _save_sheet(charts: Sequence[Chart | BarChart], stem: Path, *, caption: str = "") -> list[Path]:
    """Draws charts side by side on one sheet, in their order; save it as PNG and as SVG.

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
    """Yields the number of columns of each row, and its charts."""
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


def inline_svg(chart: Chart | BarChart) -> Markup:
    """Renders an SVG element as wide as its container, in the page's colours and font.

    Points and bars have hover texts. No element has an id, because charts could share ids.
    """
    if isinstance(chart, Chart):
        width, height = _SMALL if chart.small else _WIDE
    else:
        width, height = _WIDE[0], bars_height(chart, _PAGE_EM)
    with rc_context(_PAGE_STYLE):
        figure = Figure((width / 72, height / 72))
        figure.patch.set_visible(False)
        texts = draw(place(figure, chart, (0, 0, width, height), _PAGE_EM), chart)
        make_visible(figure)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg")
    name = html.escape(visible(chart.name))
    body = _page_elements(drawn.getvalue(), map(visible, texts))
    return Markup(  # noqa: S704 - what matplotlib writes is escaped, and so are the name and the texts
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">{body}</svg>'
    )


def _page_elements(svg: str, texts: Iterable[str]) -> str:
    """Returns the elements that matplotlib wrote, with the page's colours and hover texts.

    Only tags are changed; names from runs are escaped in tags and text.
    """
    rest = iter(texts)

    def rewrite(tag: re.Match[str]) -> str:
        text = tag[0]
        pointed = text.startswith("<use ") or f'id="{HOVER}"' in text
        title = f"<title>{html.escape(next(rest))}</title>" if pointed else ""
        text = _DECIMALS.sub("", _UNWANTED.sub("", text))
        if text.startswith("<use "):  # a mark of a curve, whose shape would need an id
            text = _MARK.sub(rf'<circle r="{_RADIUS}" cx=\1 cy=\2\3>', text)
            title += "</circle>"
        return _COLOUR.sub(lambda colour: _VARIABLES[colour[0]], text) + title

    body = svg[svg.index('<g id="figure_1">') : svg.rindex("</svg>")]
    body = re.sub(r"<defs>.*?</defs>", "", body, flags=re.DOTALL)
    return re.sub("<[^>]+>", rewrite, re.sub(r">\s+<", "><", body))
