"""Renders a chart as an SVG element with the page's colours and font. No display is needed."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from clusterkit.report.chart_data import BarChart, Chart
from clusterkit.report.drawing import COLOURS, HOVER, STYLE, bars_height, draw, make_visible, place
from clusterkit.report.words import visible

_EM = 12.0
"""Text size in points, which are SVG's user units here."""
_RADIUS = 2.5
"""Radius of a mark."""
_WIDE, _SMALL = (620.0, 300.0), (260.0, 150.0)
"""Size of a chart."""
_STYLE = STYLE | {
    "font.size": _EM,
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


def inline_svg(chart: Chart | BarChart) -> Markup:
    """Renders an SVG element as wide as its container, in the page's colours and font.

    Points and bars have hover texts. No element has an id, because charts could share ids.
    """
    if isinstance(chart, Chart):
        width, height = _SMALL if chart.small else _WIDE
    else:
        width, height = _WIDE[0], bars_height(chart, _EM)
    with rc_context(_STYLE):
        figure = Figure((width / 72, height / 72))
        figure.patch.set_visible(False)
        texts = draw(place(figure, chart, (0, 0, width, height), _EM), chart)
        make_visible(figure)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg")
    name = html.escape(visible(chart.name))
    body = _page_elements(drawn.getvalue(), map(visible, texts))
    return Markup(  # noqa: S704 - what matplotlib writes is escaped, and so are the name and the texts
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">{body}</svg>'
    )


def _page_elements(svg: str, texts: Iterable[str]) -> str:
    """The elements that matplotlib wrote, with the page's colours and hover texts.

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
