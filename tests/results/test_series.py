"""A metric's values by step, its last one, and what is not finite among them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cli.ui.curves import panels
from clusterkit.commands.curves import Curves
from clusterkit.results.checkpoints import best_step
from clusterkit.results.logs.run_logs import RunLogs
from clusterkit.results.metrics import MetricRow
from clusterkit.results.series import not_finite, not_finite_words, series
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.selection import known_state
from clusterkit.sharing.description import describe

NAN = math.nan


def rows_of(*values: Any, name: str = "loss", kind: str = "train") -> list[MetricRow]:
    """What is read of lines with these values at steps 1, 2, ..., as Python writes them."""
    logs = RunLogs()
    for step, value in enumerate(values, 1):
        line = {"kind": kind, "step": step, name: value}
        logs.feed("metrics.jsonl", json.dumps(line).encode() + b"\n")
    return list(logs.rows)


@pytest.mark.parametrize(
    "lost", [NAN, math.inf, -math.inf, 1e200, 10**400, "NaN", "nan", "Infinity", "-inf", None]
)
def test_a_metric_has_no_last_value_after_one_that_is_not_finite(lost: object) -> None:
    values = series(rows_of(1.0, 1e-9, lost, lost), "loss")
    how = "null, not finite," if lost is None else "not finite"
    assert (values.last, values.lost_from) == (None, 3)
    assert values.why == f"loss was {how} from step 3 to the end"
    assert values.finite == [(1, 1.0), (2, 1e-9)]


def test_a_metric_that_recovers_has_its_last_value() -> None:
    values = series(rows_of(1.0, NAN, None, 0.5), "loss")
    assert (values.last, values.lost_from, values.why) == ((4, 0.5), None, None)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        ((1.0, None, None, 0.5, None, None), (4, 0.5)),
        ((None, 1.0, None, 0.5, None), (4, 0.5)),
        ((1.0, None, None, 0.5, None, None, None), None),
        ((1.0, 0.5, None), None),
    ],
)
def test_null_is_a_value_that_was_not_measured_where_as_many_came_before_a_number(
    values: tuple[float | None, ...], last: tuple[int, float] | None
) -> None:
    assert series(rows_of(*values), "loss").last == last


def test_what_is_always_null_or_no_number_is_no_metric() -> None:
    for value in (None, "text", True, [1.0], "1.0"):
        assert series(rows_of(value, value), "loss").points == ()


def test_a_resumed_run_that_diverges_has_not_the_value_of_the_attempt_before() -> None:
    rows = [MetricRow("train", step, 0.0, 0, {"loss": 0.1}) for step in (1, 2, 3)]
    for lost in (NAN, None):
        again = [MetricRow("train", step, 0.0, 1, {"loss": lost}) for step in (2, 3)]
        assert series([*rows, *again], "loss").lost_from == 2


def test_a_line_without_the_metric_changes_nothing() -> None:
    rows = [MetricRow("train", 1, 0.0, 0, {"loss": 0.1}), MetricRow("train", 2, 0.0, 0, {"speed": NAN})]
    assert series(rows, "loss").last == (1, 0.1)


def test_the_note_names_which_metrics_were_not_finite_how_often_and_where() -> None:
    rows = [
        MetricRow(
            "train",
            step,
            0.0,
            0,
            {"reward": NAN if step == 3 else 1.0, "loss": NAN if step > 10 else 0.1, "none": None},
        )
        for step in range(1, 21)
    ]
    assert not_finite_words(not_finite(rows)) == (
        "loss was not finite at 10 of 20 points, from step 11 to the end; "
        "reward was not finite at 1 of 20 points, first at step 3"
    )
    both = rows_of(NAN, 1.0, NAN)
    assert (
        not_finite_words(not_finite(both))
        == "loss was not finite at 2 of 3 points, first at step 1, and from step 3 to the end"
    )
    assert not_finite(rows_of(1.0, 2.0)) == []


def test_curves_say_nan_where_a_line_stops() -> None:
    run = LedgerRun("r-1", "here", "r", "p", "", 0, "", "", "/r", 0, "COMPLETED")
    for name, panel in (("loss", 0), ("success/mean", 0), ("return/mean", 0)):
        rows = rows_of(1.0, 0.5, NAN, NAN, name=name, kind="eval")
        shown = panels(Curves(run, known_state(run), tuple(rows)))[panel]
        assert (shown.last, shown.lost_from) == ("nan", 3)
        assert [step for step, _ in shown.points] == [1, 2]


def test_the_mean_return_of_tasks_is_nan_where_one_of_them_is() -> None:
    run = LedgerRun("r-1", "here", "r", "p", "mt10", 0, "", "", "/r", 0, "COMPLETED")
    rows = [
        MetricRow("train", step, 0.0, 0, {"return/a": 1.0, "return/b": None if step > 2 else 3.0})
        for step in (1, 2, 3, 4)
    ]
    shown = panels(Curves(run, known_state(run), tuple(rows)))[1]
    assert (shown.points, shown.last) == ([(1, 2.0), (2, 2.0)], "nan")


def test_a_comparison_of_runs_says_since_when_a_metric_was_not_finite() -> None:
    for name, title in (("loss", "loss"), ("success/mean", "success")):
        rows = rows_of(0.5, 0.25, NAN, name=name, kind="eval")
        described = describe({"run_id": "r-1"}, "here", rows=rows)
        assert described.values["results", title] == "not finite from step 3 to the end"


def test_the_best_evaluation_is_none_that_the_next_attempt_found_not_finite(tmp_path: Path) -> None:
    rows = [
        {"kind": "eval", "step": 100, "success/mean": 0.4},
        {"kind": "eval", "step": 200, "success/mean": 0.9},
        {"kind": "eval", "step": 200, "attempt": 1, "success/mean": NAN},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert best_step(tmp_path / "metrics.jsonl") == 100
