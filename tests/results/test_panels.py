"""The geometry of the page's charts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterkit.report.groups import Point
from clusterkit.report.panels import Series, format_value, nice_ticks, panel
from clusterkit.report.statistics import Interval


@given(st.floats(-1e7, 1e7), st.floats(1e-3, 1e7))
def test_ticks_are_inside_few_and_even(low: float, span: float) -> None:
    high = low + span
    ticks = nice_ticks(low, high, 4)
    assert 1 <= len(ticks) <= 6
    slack = 1e-6 * max(abs(low), abs(high), 1.0)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    gaps = [b - a for a, b in pairwise(ticks)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps) if gaps else [], rel=1e-4)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (950, "950"), (1500, "1.5k"), (256_000, "256k"), (12_345_678, "12.3M")],
)
def test_values_are_short(value: float, text: str) -> None:
    assert format_value(value) == text
    assert format_value(-value) == (f"-{text}" if value else text)


@pytest.mark.slow
@example([(0, 5e-324)], False)
@example([(0, 1.0), (1, 1.0 + 2e-16)], False)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(-1e5, 1e5)), min_size=1, max_size=20),
    st.booleans(),
)
def test_everything_is_drawn_inside(values: list[tuple[int, float]], from_zero: bool) -> None:
    points = [Point(step, abs(value) if from_zero else value, None) for step, value in values]
    chart = panel("t", [Series("a", 0, points)], width=300, height=200, from_zero=from_zero, end=1000)
    for mark in chart.lines[0].marks:
        assert chart.left <= mark.x <= chart.right
        assert chart.top - 0.01 <= mark.y <= chart.bottom + 0.01
    assert all(chart.left <= tick.at <= chart.right for tick in chart.x_ticks)


def test_coordinates_of_a_success_curve() -> None:
    points = [Point(0, 0.0, Interval(0.0, 0.5)), Point(100, 1.0, Interval(0.75, 1.0))]
    chart = panel("t", [Series("x", 2, points)], width=358, height=132, rate=True, end=100)
    (line,) = chart.lines
    assert line.points == "46,108 340,14"
    assert line.band == "46,61 340,14 340,37.5 46,108"
    assert line.marks[1].text == "x: 100% (75% to 100%) at 100 steps"
    assert [tick.label for tick in chart.y_ticks] == ["0%", "25%", "50%", "75%", "100%"]


def test_one_point_has_no_band() -> None:
    chart = panel("t", [Series("x", 0, [Point(5, 0.5, Interval(0.1, 0.9))])], width=300, height=100, end=5)
    assert chart.lines[0].band == ""
    assert len(chart.lines[0].marks) == 1
