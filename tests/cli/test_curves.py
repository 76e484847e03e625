"""Curves in braille, and the panels around them at several widths."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.curves import plot, view
from clusterkit.commands.curves import Curves
from clusterkit.results.metrics import MetricRow
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState


def test_a_rising_line() -> None:
    lines = plot([(0, 0), (1, 1)], width=2, height=1, across=(0, 1), up=(0, 1))
    assert lines == ["⡠⠊"]


def test_flat_lines_at_the_ends_of_the_range() -> None:
    for value, wanted in ((0.0, ["  ", "⣀⣀"]), (1.0, ["⠉⠉", "  "])):
        assert plot([(0, value), (9, value)], width=2, height=2, across=(0, 9), up=(0, 1)) == wanted


def test_no_points_are_an_empty_picture() -> None:
    assert plot([], width=3, height=2, across=(0, 1), up=(0, 1)) == ["   ", "   "]


def test_points_of_one_column_are_one_dot_at_their_mean() -> None:
    lines = plot([(0, 0), (0, 1)], width=1, height=1, across=(0, 1), up=(0, 1))
    assert lines == ["⠂"]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(-1e9, 1e9)), max_size=60),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_any_points_fit(points: list[tuple[float, float]], width: int, height: int) -> None:
    lines = plot(sorted(points), width=width, height=height, across=(0, 1e9), up=(-1e9, 1e9))
    assert [len(line) for line in lines] == [width] * height
    assert any(line.strip() for line in lines) == bool(points)


RUN = LedgerRun(
    "mt10-1", "datalab", "mt10", "a40", "", 1, "4711", "2026-01-02T03:04:05Z", "/r/mt10-1", 0, "RUNNING"
)


def rows(count: int) -> tuple[MetricRow, ...]:
    made = [MetricRow("run", 0, 0.0, 0, {"total_steps": 2_000_000})]
    made += [MetricRow("event", 0, 0.0, 0, {"message": "resumed [bold]from[/] a\ncheckpoint " + "x" * 300})]
    for number in range(1, count + 1):
        made.append(MetricRow("train", 1000 * number, 0.0, 0, {"steps_per_second": 1234.5}))
        values = {"success/mean": number / count, "return/mean": -5000.0 + 100 * number}
        made.append(MetricRow("eval", 1000 * number, 0.0, 0, values))
    return tuple(made)


@pytest.mark.parametrize("width", [40, 80, 119, 120, 160, 300])
@pytest.mark.parametrize("height", [24, 50, None])
@pytest.mark.parametrize("count", [0, 1, 100])
@pytest.mark.parametrize("recipe", ["", "mt10"])
def test_the_panels_fit_the_terminal(width: int, height: int | None, count: int, recipe: str) -> None:
    stream = io.StringIO()
    Console(file=stream, width=width, height=height or 25).print(
        view(Curves(replace(RUN, recipe=recipe), RunState(JobState.RUNNING), rows(count)), width, height)
    )
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert height is None or len(lines) <= height
    assert stream.getvalue().count("nothing yet") == (0 if count else 3 if recipe else 0)
    assert "[bold]from[/]" in lines[1]


@pytest.mark.parametrize(
    ("state", "left"),
    [
        (RunState(JobState.RUNNING, eta_seconds=90.0, steps_per_second=10.0), "1m 30s left"),
        (RunState(JobState.RUNNING), ""),
        (RunState(JobState.FAILED, eta_seconds=90.0), ""),
    ],
)
def test_the_title_tells_the_time_left_that_status_tells(state: RunState, left: str) -> None:
    """The rate of the metrics includes the start-up."""
    stream = io.StringIO()
    Console(file=stream, width=120).print(view(Curves(RUN, state, rows(3)), 120))
    title = stream.getvalue().splitlines()[0]
    assert "step 3k of 2M" in title
    assert (left in title) if left else ("left" not in title)
