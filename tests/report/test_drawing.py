"""Charts as inline SVG: what is drawn is inside, says what it is, and holds nothing but what it should."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clusterkit.report.chart_data import (
    INK,
    SOFT,
    STEPS,
    TIME,
    BarChart,
    Chart,
    Curve,
    RunBar,
    Scale,
    Stretch,
    format_value,
    time_ticks,
)
from clusterkit.report.groups import Point
from clusterkit.report.pictures import inline_svg
from clusterkit.report.statistics import Interval

EVIL = '<script>alert(1)</script> "\'& --> $\\frac{x$ #0072b2 id="hover" <use/>'


def chart(points: list[Point], scale: Scale = Scale.AS_FOUND, label: str = "x", *, end: float = 100) -> Chart:
    return Chart("t", (Curve(label, "c2", points),), end, STEPS, scale)


def drawn(one: Chart | BarChart) -> ET.Element:
    return ET.fromstring(inline_svg(one))


def marks(svg: ET.Element) -> list[tuple[float, float]]:
    return [(float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in svg.iter("circle")]


def texts(svg: ET.Element, tag: str) -> list[str]:
    return [one.text or "" for one in svg.iter(tag)]


@given(st.floats(1, 1e9))
def test_ticks_of_time_are_inside_few_and_even(end: float) -> None:
    ticks = time_ticks(end)
    assert 1 <= len(ticks) <= 5
    assert ticks[0] == 0
    assert ticks[-1] <= end
    assert len({b - a for a, b in pairwise(ticks)}) <= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (950, "950"), (1500, "1.5k"), (256_000, "256k"), (12_345_678, "12.3M")],
)
def test_values_are_short(value: float, text: str) -> None:
    assert format_value(value) == text
    assert format_value(-value) == (f"-{text}" if value else text)


POINTS = st.lists(st.tuples(st.integers(0, 1000), st.floats(-1e5, 1e5)), min_size=1, max_size=20)


@example([(0, 5e-324)], False)
@example([(0, 1.0), (1, 1.0 + 2e-16)], False)
@given(POINTS, st.booleans())
def test_the_y_axis_holds_every_value(values: list[tuple[int, float]], from_zero: bool) -> None:
    points = [Point(step, abs(value) if from_zero else value, None) for step, value in values]
    low, high = chart(points, Scale.FROM_ZERO if from_zero else Scale.AS_FOUND).limits
    assert low < high
    assert all(low <= point.value <= high for point in points)
    assert low == 0 or not from_zero


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example([(0, 5e-324)], Scale.AS_FOUND)
@example([(0, 1.0), (1, 1.0 + 2e-16)], Scale.AS_FOUND)
@example([(-5, -1e300), (10**18, 1e300)], Scale.AS_FOUND)
@example([(0, -1e300), (5, 7.0)], Scale.RATES)
@given(POINTS, st.sampled_from(Scale))
def test_everything_is_drawn_inside(values: list[tuple[int, float]], scale: Scale) -> None:
    svg = drawn(chart([Point(step, value, None) for step, value in values], scale, end=1000))
    assert len(marks(svg)) == len(values)
    assert all(45 <= x <= 602 and 14 <= y <= 261 for x, y in marks(svg))
    assert not re.search("nan|inf", " ".join(path.attrib["d"] for path in svg.iter("path")))


def test_coordinates_of_a_success_curve() -> None:
    svg = drawn(chart([Point(0, 0.0, Interval(0.0, 0.5)), Point(100, 1.0, Interval(0.75, 1.0))], Scale.RATES))
    assert svg.attrib == {"viewBox": "0 0 620 300", "role": "img", "aria-label": "t over environment steps"}
    paths = {path.attrib["style"]: " ".join(path.attrib["d"].split()) for path in svg.iter("path")}
    (curve,) = [path for style, path in paths.items() if "stroke: var(--c2)" in style]
    assert curve == "M 45.6 260.4 L 602 14.4"
    (band,) = [path for style, path in paths.items() if "opacity" in style]
    assert band == "M 45.6 137.4 L 602 14.4 L 602 75.9 L 45.6 260.4 z"
    assert marks(svg) == [(45.6, 260.4), (602, 14.4)]
    assert texts(svg, "title")[1] == "x: 100% (75% to 100%) at 100 steps"
    assert texts(svg, "text")[-5:] == ["0%", "25%", "50%", "75%", "100%"]


def test_a_band_widens_the_axis_by_half_of_what_the_values_span() -> None:
    points = [Point(step, value, Interval(-10.0, 12.25)) for step, value in ((0, 11.0), (100, 12.0))]
    assert chart(points).limits == (10.5, 12.25)


def test_single_runs_are_thin_lines_that_say_whose_they_are() -> None:
    points = [Point(0, 1.0, None), Point(100, 2.0, None)]
    runs = tuple(Curve(f"seed {seed}", SOFT, points, faint=True) for seed in (1, 2))
    one = Chart("t", (*runs, Curve("mean", INK, points, thick=True)), 100, STEPS)
    svg = drawn(one)
    assert (len(marks(svg)), texts(svg, "title")[:2]) == (2, ["seed 1", "seed 2"])
    assert one.legend == {"single runs": SOFT, "mean": INK}


def test_one_point_has_no_band() -> None:
    svg = drawn(chart([Point(5, 0.5, Interval(0.1, 0.9))]))
    assert not [path for path in svg.iter("path") if "opacity" in path.attrib["style"]]
    assert len(marks(svg)) == 1


def test_bars_say_what_they_are() -> None:
    bars = (
        RunBar(
            "seed 1, 2 attempts", (Stretch(0, 30, "c0", "attempt 0", "50%"), Stretch(30, 30, "warn", "x"))
        ),
    )
    svg = drawn(BarChart("Attempts", bars, 60.0, {}, TIME))
    assert svg.attrib["aria-label"] == "Attempts"
    assert texts(svg, "title") == ["attempt 0", "x", "seed 1, 2 attempts"]
    assert {"50%", "seed 1, 2 attempts", "0s", "15s", "1m"} <= set(texts(svg, "text"))
    assert [path.attrib["style"].split(";")[0] for path in svg.iter("path")] == [
        "fill: var(--c0)",
        "fill: var(--warn)",
    ]


def test_many_bars_are_thin_and_a_pointer_names_them() -> None:
    bars = tuple(RunBar(f"seed {seed}", (Stretch(0, 30, "c0", "attempt 0", "50%"),)) for seed in range(50))
    chart = BarChart("Attempts", bars, 60.0, {}, TIME)
    svg = drawn(chart)
    assert texts(svg, "title")[7] == "seed 7: attempt 0"
    assert "50%" not in texts(svg, "text")
    assert float(svg.attrib["viewBox"].split()[3]) < 700


def test_a_name_stays_text_and_nothing_has_an_id() -> None:
    curves = (Curve(EVIL, "c0", [Point(0, 1.0, None), Point(9, 2.0, None)]),)
    bars = (RunBar(EVIL, (Stretch(0, 1, "c0", EVIL, "x"),)),)
    for one in (
        Chart(EVIL, curves, 9, STEPS, starts=((4, EVIL),)),
        Chart(EVIL, curves, 9, STEPS, small=True),
        BarChart(EVIL, bars, 1.0, {}),
    ):
        text = inline_svg(one)
        assert text == inline_svg(one)
        svg = ET.fromstring(text)
        assert EVIL in svg.attrib["aria-label"]
        assert all(title.startswith(EVIL) for title in texts(svg, "title"))
        assert {element.tag for element in svg.iter()} <= {"svg", "g", "path", "circle", "text", "title"}
        known = {"viewBox", "role", "aria-label", "style", "d", "x", "y", "cx", "cy", "r"}
        assert {name for element in svg.iter() for name in element.attrib} <= known
        styles = " ".join(element.attrib.get("style", "") for element in svg.iter())
        assert not re.search("#|url|font", styles)
