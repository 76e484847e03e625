"""The numbers that trackers get from a metrics.jsonl: each name and step once."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.results.logs.run_logs import read_run
from clusterkit.results.series import series
from clusterkit.results.tracked import tracked_rows
from clusterkit.trackers.base import MetricPoint
from tests.trackers.run_files import ALL_STEPS, STARTS, append, expected, line, lines


def points_of(metrics: Path, known: int | None = None) -> list[MetricPoint]:
    return list(tracked_rows(metrics.parent, own=False).points(known))


def test_each_step_of_a_run_requeued_twice_comes_once_and_is_the_last_starts(tmp_path: Path) -> None:
    metrics = append(tmp_path, "".join(lines(steps, attempt) for attempt, steps in enumerate(STARTS)))
    found = points_of(metrics)
    losses = [(one.step, one.value) for one in found if one.name == "train/loss"]
    assert losses == list(expected().items())
    assert [one.step for one in found] == sorted(one.step for one in found)
    assert [one.step for one in found if one.name == "eval/success/mean"] == ALL_STEPS[9::10]


def test_a_start_that_logs_at_other_steps_ends_the_numbers_of_the_one_before(tmp_path: Path) -> None:
    before = "".join(line(step, loss=0.9) for step in (10, 20, 30, 40)) + line(40, accuracy=0.5)
    metrics = append(tmp_path, before + line(25, attempt=1, loss=0.1) + line(35, attempt=1, loss=0.1))
    assert [(one.name, one.step, one.value) for one in points_of(metrics)] == [
        ("train/loss", 10, 0.9),
        ("train/loss", 20, 0.9),
        ("train/loss", 25, 0.1),
        ("train/loss", 35, 0.1),
        ("train/accuracy", 40, 0.5),
    ]
    assert [one.step for one in points_of(metrics, 0) if one.name == "train/loss"] == [10, 20, 25, 30, 35, 40]


def test_the_report_draws_the_same_series(tmp_path: Path) -> None:
    metrics = append(tmp_path, "".join(lines(steps, attempt) for attempt, steps in enumerate(STARTS)))
    for name in ("loss", "speed"):
        drawn = series(read_run(metrics.parent, own=False).rows, name).finite
        assert [(one.step, one.value) for one in points_of(metrics) if one.name == f"train/{name}"] == drawn


def test_lines_without_a_kind_have_bare_names(tmp_path: Path) -> None:
    metrics = append(tmp_path, '{"step": 1, "loss": 2}\n{"loss": 3}\n{"step": 4, "loss": 5}\n')
    for known in (None, 0):
        assert [(one.name, one.step, one.value) for one in points_of(metrics, known)] == [
            ("loss", 1, 2.0),
            ("loss", 4, 5.0),
        ]
    metrics.write_text('{"loss": 3}\n{"loss": 4, "acc": 1}\n')
    for known in (None, 0):
        assert [one.step for one in points_of(metrics, known)] == [0, 1, 1]


def test_several_lines_of_a_step_are_joined(tmp_path: Path) -> None:
    metrics = append(tmp_path, line(1, loss=1.0, speed=5) + line(1, accuracy=0.5) + line(1, loss=2.0))
    assert {one.name: one.value for one in points_of(metrics)} == {
        "train/loss": 2.0,
        "train/speed": 5.0,
        "train/accuracy": 0.5,
    }


def test_a_later_line_of_a_known_step_adds_only_names_that_it_did_not_have(tmp_path: Path) -> None:
    metrics = append(tmp_path, line(1, loss=1.0))
    known = metrics.stat().st_size
    append(tmp_path, line(1, attempt=1, loss=2.0, accuracy=0.5) + line(2, attempt=1, loss=3.0))
    assert [(one.name, one.step) for one in points_of(metrics, known)] == [
        ("train/accuracy", 1),
        ("train/loss", 2),
    ]


def test_only_numbers_of_training_and_evaluation_count(tmp_path: Path) -> None:
    odd = {
        "text": "a",
        "flag": True,
        "none": None,
        "list": [1],
        "nan": math.nan,
        "nan as text": "NaN",
        "huge": 10**400,
        "inf": -math.inf,
    }
    text = line(1, kind="run", seed=1) + line(1, kind="checkpoint", bytes=9) + line(1, **odd) + "{]\n\n[1]\n"
    found = {one.name: one.value for one in points_of(append(tmp_path, text))}
    assert found.keys() == {"train/nan", "train/nan as text", "train/huge", "train/inf"}
    assert math.isnan(found["train/nan"])
    assert math.isnan(found["train/nan as text"])
    assert (found["train/inf"], found["train/huge"]) == (-math.inf, math.inf)


def test_a_half_written_last_line_comes_when_it_is_whole(tmp_path: Path) -> None:
    whole = line(1, loss=1.0) + line(2, loss=2.0)
    for cut in range(len(whole) + 1):
        metrics = tmp_path / "metrics.jsonl"
        metrics.write_text(whole[:cut])
        before = points_of(metrics)
        metrics.write_text(whole)
        assert [one.step for one in (*before, *points_of(metrics, known=cut))] == [1, 2]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.sets(st.sampled_from("abc"))), max_size=25),
    st.lists(st.integers(0, 2000), max_size=4),
)
def test_syncs_at_any_bytes_bring_each_name_and_step_once(
    tmp_path_factory, rows: list[tuple[int, int, set[str]]], cuts: list[int]
) -> None:
    text = "".join(line(step, attempt, **dict.fromkeys(names, attempt)) for step, attempt, names in rows)
    metrics = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    got: Counter[tuple[str, int]] = Counter()
    known = 0
    for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]:
        metrics.write_text(text[:cut])
        got.update((one.name, one.step) for one in points_of(metrics, known))
        known = cut
    wanted = {
        (f"train/{name}", json.loads(row)["step"])
        for row in text.splitlines()
        for name in "abc"
        if f'"{name}"' in row
    }
    assert got == Counter(wanted)
