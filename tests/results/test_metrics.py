"""Reading metrics.jsonl: the attempt rule, and files that are not all rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.results.growing import GrowingRun, read_logs
from clusterkit.results.logs.run_logs import RunLogs, read_run
from clusterkit.results.metrics import LONGEST_LINE, MetricRow, each, last_step, latest, own_names
from clusterkit.results.series import series
from clusterkit.transport.local import LocalTransport

ROWS = st.lists(
    st.builds(
        MetricRow,
        kind=st.sampled_from(["eval", "train", "event"]),
        step=st.integers(0, 6),
        time=st.just(0.0),
        attempt=st.integers(0, 3),
        values=st.fixed_dictionaries({"value": st.integers()}),
    ),
    max_size=40,
)


def parse(lines: Iterable[bytes]) -> list[MetricRow]:
    logs = RunLogs()
    logs.feed("metrics.jsonl", b"\n".join(line.rstrip(b"\n") for line in lines) + b"\n")
    return list(logs.rows)


def as_line(row: MetricRow) -> bytes:
    fields = {"kind": row.kind, "step": row.step, "time": row.time, "attempt": row.attempt}
    return json.dumps(fields | dict(row.values)).encode() + b"\n"


@pytest.mark.slow
@given(ROWS)
def test_rows_survive_the_file(rows: list[MetricRow]) -> None:
    assert parse(map(as_line, rows)) == rows


@pytest.mark.slow
@given(ROWS)
def test_a_row_counts_below_the_first_step_of_any_later_attempt(rows: list[MetricRow]) -> None:
    counting: dict[int, MetricRow] = {}
    for row in rows:
        later = [other.step for other in rows if other.kind == "eval" and other.attempt > row.attempt]
        if row.kind == "eval" and all(row.step < step for step in later):
            counting[row.step] = row
    assert latest(rows, "eval") == [counting[step] for step in sorted(counting)]


def test_a_resumed_run_has_every_step_once() -> None:
    first = [MetricRow("eval", step, 0.0, 0, {"success/mean": 0.1}) for step in (100, 200, 300)]
    second = [MetricRow("eval", step, 0.0, 1, {"success/mean": 0.9}) for step in (300, 400)]
    assert [(row.step, row.attempt) for row in latest(first + second, "eval")] == [
        (100, 0),
        (200, 0),
        (300, 1),
        (400, 1),
    ]


def test_a_resumed_run_that_logs_at_other_steps_has_one_curve_and_its_own_last_step() -> None:
    """A program that logs every few seconds logs at other steps when it repeats some."""
    first = [MetricRow("train", step, 0.0, 0, {"loss": 0.9}) for step in (10, 20, 30, 40, 50)]
    first.append(MetricRow("eval", 45, 0.0, 0, {"elo": 1.0}))
    second = [MetricRow("train", step, 0.0, 1, {"loss": 0.1}) for step in (25, 35)]
    assert series(first + second, "loss").points == ((10, 0.9), (20, 0.9), (25, 0.1), (35, 0.1))
    assert series(first + second, "elo").points == ((45, 1.0),)
    assert last_step(first + second) == 35
    assert last_step([]) is None


def test_the_lines_of_one_step_are_joined() -> None:
    lines = [{"success/mean": 0.5}, {"return/mean": 7.0}, {"success/mean": 0.6}]
    (row,) = latest([MetricRow("eval", 1, 0.0, 0, values) for values in lines], "eval")
    assert row.values == {"success/mean": 0.6, "return/mean": 7.0}


def test_lines_that_are_no_rows_are_left_out() -> None:
    lines = [
        b'{"kind": "eval", "step": 10, "success/mean": 0.5}\n',
        b"\n",
        b"[1, 2]\n",
        b'"eval"\n',
        b"17\n",
        b'{"loss": 1}\n',
        b'{"kind": 3, "step": 1}\n',
        b'{"kind": "eval", "step": "ten"}\n',
        b'{"kind": "eval", "step": NaN}\n',
        b"\xff\xfe\n",
        b'{"kind": "eval", "step": 20, "succ',
    ]
    assert parse(lines) == [MetricRow("eval", 10, 0.0, 0, {"success/mean": 0.5})]


def test_numbers_are_finite_numbers() -> None:
    row = MetricRow(
        "eval", 0, 0.0, 0, {"a": 1, "b": float("nan"), "c": True, "d": "1", "e": float("inf"), "f": 0.5}
    )
    assert [row.number(key) for key in "abcdefg"] == [1.0, None, None, None, None, 0.5, None]


def test_the_names_that_only_the_program_knows() -> None:
    lines = [
        b'{"kind": "train", "step": 1, "charts/learning_rate": 1e-3, "loss": 0.5, "return/mean": 2}',
        b'{"kind": "eval", "step": 2, "loss": 0.4, "success/mean": 1, "elo": 1200, "bad": NaN, "none": null}',
        b'{"kind": "run", "step": 0, "width": 64}',
    ]
    assert own_names(parse(lines)) == [
        "return/mean",
        "success/mean",
        "loss",
        "elo",
        "bad",
        "charts/learning_rate",
    ]


def test_what_a_program_writes_of_one_step_in_two_lines_is_all_there() -> None:
    """Every name that is found has something to draw, whatever a later line or attempt leaves out."""
    rows = parse(
        [
            b'{"kind": "train", "step": 1, "loss": 0.5}',
            b'{"kind": "train", "step": 1, "accuracy": 0.1}',
            b'{"kind": "train", "step": 1, "attempt": 1}',
            b'{"kind": "train", "step": 2, "attempt": 1, "loss": 0.3}',
        ]
    )
    points = {name: series(rows, name).finite for name in own_names(rows)}
    assert points == {"loss": [(1, 0.5), (2, 0.3)], "accuracy": [(1, 0.1)]}


def train(step: int, **values: float) -> bytes:
    return json.dumps({"kind": "train", "step": step, "loss": 0.5, **values}).encode() + b"\n"


def evaluation(step: int) -> bytes:
    return json.dumps({"kind": "eval", "step": step, "success/mean": 0.5}).encode() + b"\n"


@pytest.mark.slow
def test_of_a_large_file_training_rows_are_thinned_and_the_last_ones_stay() -> None:
    logs = RunLogs(budget=40_000)
    for step in range(10_001):
        logs.feed("metrics.jsonl", train(step) + evaluation(step) * (step % 100 == 0))
    kept = logs.rows
    steps = [row.step for row in kept if row.kind == "train"]
    assert [row.step for row in kept if row.kind == "eval"] == list(range(0, 10_001, 100))
    assert 100 < len(steps) < 400
    assert (steps[0], steps[-1]) == (0, 10_000)
    assert len({after - before for before, after in pairwise(steps[:-1])}) == 1
    assert kept == tuple(sorted(kept, key=lambda row: (row.step, row.kind != "train")))


def test_a_small_file_is_kept_whole() -> None:
    lines = [line for step in range(100) for line in (train(step), evaluation(step))]
    assert parse(lines) == list(each(lines))


def test_a_line_without_end_is_no_row_and_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(train(1) + b'{"kind": "train", "x": "' + b"y" * (3 * LONGEST_LINE) + b'"}\n' + train(2))
    assert [row.step for row in read_run(tmp_path, own=False).rows] == [1, 2]


@pytest.mark.slow
def test_a_terabyte_without_a_line_end_ends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(train(1))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert [row.step for row in read_run(tmp_path, own=False).rows] == [1]
    there = GrowingRun(str(tmp_path), RunLogs(), own=False)
    for _ in range(2):
        read_logs(LocalTransport(), [there], find=False)
        assert [row.step for row in there.logs.rows] == [1]


def test_what_is_no_file_has_no_rows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    (tmp_path / "folder/metrics.jsonl").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "folder", tmp_path / "nothing"):
        assert read_run(folder, own=False).rows == read_run(folder, own=True).rows == ()


def test_hostile_values() -> None:
    rows = parse(
        [
            b'{"kind": "train", "step": ' + b"9" * 400 + b"}",
            b'{"kind": "train", "step": 1, "loss": ' + b"9" * 4299 + b', "huge": 1e300, "\\ud800": 1}',
            b'{"kind": "train", "step": 2, "time": 1e200}',
            b'{"kind": "train", "step": 3, "deep": ' + b"[" * 100_000 + b"}",
        ]
    )
    assert [row.step for row in rows] == [1]
    assert (rows[0].number("loss"), rows[0].number("huge"), rows[0].number("\ufffd")) == (None, None, 1.0)
