"""When a pulled run counts as ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterkit.runs.run_dir import read_run_dir


@pytest.mark.parametrize(
    ("attempts", "ended"),
    [
        ([], False),
        ([{}], False),
        ([{"exit": "completed"}], True),
        ([{"exit": "failed"}], True),
        ([{"exit": "requeue"}], False),
        ([{"exit": "requeue"}, {}], False),
        ([{"exit": "requeue"}, {"exit": "completed"}], True),
        ([{"exit": "failed"}, {}], False),
        ([{"exit": "requeue", "cancel": True}], True),
        ([{"cancel": True}], False),
    ],
)
def test_ended(tmp_path: Path, attempts: list[dict[str, object]], ended: bool) -> None:
    (tmp_path / "run.json").write_text('{"run_id": "r"}')
    for number, facts in enumerate(attempts):
        folder = tmp_path / "attempts" / str(number)
        folder.mkdir(parents=True)
        if "exit" in facts:
            (folder / "exit.json").write_text(json.dumps({"code": 0, "why": facts["exit"]}))
        if "cancel" in facts:
            (folder / "cancel.json").write_text("{}")
    assert read_run_dir(tmp_path).ended is ended


@pytest.mark.parametrize(("time", "ended"), [(101, True), (99, False)])
def test_a_run_that_stopped_for_good_has_ended_unless_it_went_on_later(
    tmp_path: Path, time: int, ended: bool
) -> None:
    (tmp_path / "run.json").write_text('{"run_id": "r"}')
    (tmp_path / "attempts/0").mkdir(parents=True)
    (tmp_path / "attempts/0/exit.json").write_text('{"code": 85, "why": "requeue", "ended": 100}')
    (tmp_path / "stopped.json").write_text(json.dumps({"why": "no progress", "time": time}))
    assert read_run_dir(tmp_path).ended is ended


def test_attempts_are_in_order_of_number(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"run_id": "r"}')
    for number in (10, 9, 2):
        (tmp_path / "attempts" / str(number)).mkdir(parents=True)
    (tmp_path / "attempts" / "notes").mkdir()
    run = read_run_dir(tmp_path)
    assert [attempt.number for attempt in run.attempts] == [2, 9, 10]
    assert run.run_id == "r"
