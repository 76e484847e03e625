"""Reading run directories with the real shell fragment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.submission import Submission
from clusterkit.errors import RunError
from clusterkit.probes import script
from clusterkit.runs.record import Attempt, RunRecord, parse_records, read_record, records
from clusterkit.runs.run_dir import newest_request
from clusterkit.runs.verdict import silence
from clusterkit.untrusted import RECORD_BYTES
from tests.backends.runs import collect


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_what_lies_there_is_what_is_read(tmp_path: Path) -> None:
    run = tmp_path / "a 'run' é $HOME"
    start = {"attempt": 0, "job_id": "7", "node": 'n"\\1é'}
    write(run / "attempts/0/start.json", start)
    write(run / "attempts/0/exit.json", json.dumps({"code": 85}, indent=2))  # many lines, no line end
    for number in (2, 10):  # by number, not by name
        write(run / f"attempts/{number}/start.json", {"attempt": number})
    write(run / "attempts/10/cancel.json", {"time": 1})
    write(run / "heartbeat.json", {"step": 5})
    record = collect(run)[str(run)]
    assert record.attempts == (
        Attempt(0, start=start, exit={"code": 85}),
        Attempt(2, start={"attempt": 2}),
        Attempt(10, start={"attempt": 10}, cancel={"time": 1}),
    )
    assert record.heartbeat == {"step": 5}
    assert abs(record.now - time.time()) < 60


def test_damaged_empty_and_missing(tmp_path: Path) -> None:
    damaged, empty, missing = tmp_path / "damaged", tmp_path / "empty", tmp_path / "missing"
    for name in ("attempts/0/start.json", "attempts/0/exit.json", "heartbeat.json"):
        write(damaged / name, '{"code": ')
    write(damaged / "attempts/0/cancel.json", "[]")
    write(damaged / "attempts/notes/exit.json", "{}")
    empty.mkdir()
    records = collect(damaged, empty, missing)
    assert [records[str(path)].attempts for path in (damaged, empty, missing)] == [(Attempt(0),), (), ()]
    assert [records[str(path)].exists for path in (damaged, empty, missing)] == [True, True, False]


def test_one_run_does_not_disturb_the_next(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    write(first / "heartbeat.json", "no json")
    write(second / "heartbeat.json", {"step": 1})
    records = collect(first, tmp_path / "gone", second)
    assert records[str(second)].heartbeat == {"step": 1}


def test_files_that_are_too_large_or_no_files_are_named_and_not_read(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    write(good / "heartbeat.json", {"step": 1})
    write(bad / "attempts/0/start.json", {"attempt": 0, "started": 5})
    with (bad / "heartbeat.json").open("w") as file:
        file.truncate(1 << 40)  # sparse: a terabyte of nothing
    os.mkfifo(bad / "attempts/0/exit.json")
    (bad / "submissions/0/request.json").mkdir(parents=True)
    write(bad / "submissions/²/request.json", {"pack": 2})
    write(bad / "submissions/1/answer", "x" * (RECORD_BYTES + 1))
    write(bad / "submissions/2/status", "²")
    write(bad / "attempts/1/start.json", "line\n\x1eclusterkit-record end\n")
    records = collect(bad, good, seconds=20)
    assert records[str(good)].heartbeat == {"step": 1}
    record = records[str(bad)]
    assert record.heartbeat is None
    assert record.attempts[0] == Attempt(0, start={"attempt": 0, "started": 5}, exit=None)
    assert [each.number for each in record.submissions] == [0, 1, 2]
    assert record.submissions[2].status is None
    assert set(record.unreadable) == {
        "heartbeat.json",
        "attempts/0/exit.json",
        "attempts/1/start.json",
        "submissions/0/request.json",
        "submissions/1/answer",
    }


@pytest.mark.slow
def test_a_run_with_too_many_attempts_is_not_gone_through(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for number in range(20_000):
        (run / f"attempts/{number}").mkdir(parents=True)
    write(other / "heartbeat.json", {"step": 1})
    records = collect(run, other, seconds=20)
    assert records[str(run)].unreadable == ("attempts",)
    assert records[str(other)].heartbeat == {"step": 1}


def test_values_of_another_type_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path / "submissions/0/request.json", {"pack": "two", "in_one": 10**400, "number": 0})
    write(tmp_path / "heartbeat.json", '{"step": NaN, "time": 5}')
    record = collect(tmp_path)[str(tmp_path)]
    assert not record.packed
    assert record.request.number == 0
    assert record.request.damage == "submissions/0/request.json (pack)"
    assert record.unreadable == ("submissions/0/request.json (pack)",)


@pytest.mark.slow
def test_a_thousand_runs_start_no_thousand_processes(tmp_path: Path) -> None:
    runs = [tmp_path / str(number) for number in range(1000)]
    for run in runs:
        write(run / "attempts/0/start.json", {"attempt": 0})
        write(run / "heartbeat.json", {"step": 1})
    fragment = script([records([str(run) for run in runs])])
    # With no PATH every program would fail to start; only the clock needs one.
    done = subprocess.run(["/bin/sh"], input=fragment, capture_output=True, text=True, env={"PATH": ""})
    found = parse_records(done.stdout)
    assert len(found) == 1000
    assert all(record.heartbeat and record.attempts for record in found.values())


def test_runs_that_go_on_share_the_processes_that_look_at_their_files(tmp_path: Path) -> None:
    calls, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    for name in ("stat", "find", "awk", "xargs", "date", "sh"):
        write(tools / name, f'#!/bin/sh\necho {name} >>{calls}\nexec {shutil.which(name)} "$@"\n')
        (tools / name).chmod(0o755)
    runs = [tmp_path / "runs" / str(number) for number in range(50)]
    for run in runs:
        write(run / "attempts/0/start.json", {"attempt": 0})
        write(run / "heartbeat.json", {"step": 1})
    fragment = script([records([str(run) for run in runs])])
    done = subprocess.run(
        ["/bin/sh"], input=fragment, capture_output=True, text=True, env={"PATH": str(tools)}
    )
    found = parse_records(done.stdout)
    assert all(record.alive is not None for record in found.values())
    assert len(calls.read_text().split()) < 12


def test_banners_before_it_do_not_matter_and_a_cut_is_an_error(tmp_path: Path) -> None:
    answer = subprocess.run(
        ["sh"], input=script([records([str(tmp_path)])]), capture_output=True, text=True
    ).stdout
    assert parse_records("Welcome\n" + answer)[str(tmp_path)].exists
    for text in ("", "Welcome\n", answer.rpartition("end")[0]):
        with pytest.raises(RunError):
            parse_records(text)


def test_no_runs() -> None:
    assert collect() == {}


@pytest.mark.parametrize(
    ("attempts", "cancelled"),
    [
        ((), False),
        ((Attempt(0, start={"job_id": "1"}),), False),
        ((Attempt(0, cancel={}),), True),
        ((Attempt(0, start={"job_id": "1"}, cancel={}),), True),
        # Asked while it waited, and it started all the same.
        ((Attempt(0, cancel={"job_id": "1"}), Attempt(1, start={"job_id": "1"})), True),
        # Cancelled long ago and resumed since.
        (
            (Attempt(0, start={"job_id": "1"}, cancel={"job_id": "1"}), Attempt(1, start={"job_id": "2"})),
            False,
        ),
    ],
)
def test_whom_a_cancel_meant(attempts: tuple[Attempt, ...], cancelled: bool) -> None:
    assert RunRecord(attempts=attempts).cancelled is cancelled


def test_a_cancel_does_not_count_for_a_submission_after_it() -> None:
    ended = Attempt(0, start={"job_id": "1", "submission": 0}, cancel={"job_id": "1"})
    submissions = (Submission(0), Submission(1, "resume"))
    assert not RunRecord(attempts=(ended,), submissions=submissions).cancelled
    link = (submissions[0], Submission(1, "chain"))
    assert RunRecord(attempts=(ended,), submissions=link).cancelled
    again = replace(ended, cancel={"job_id": "2"})
    assert RunRecord(attempts=(again,), submissions=submissions).cancelled


def test_a_request_keeps_only_what_has_the_right_type() -> None:
    found, wrong = read_record("request.json", '{"number": 1, "command": 5, "verify_image": "yes"}')
    assert found == {"number": 1}
    assert wrong == "request.json (command, verify_image)"


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [(["0", "0"], 1), (["0", "1"], 0), (["1", "1"], 1), (["0", None], 1), (["0", *["0"] * 9, "1"], 9)],
)
def test_a_refused_submission_leaves_the_run_as_it_was(
    tmp_path: Path, statuses: list[str | None], counts: int
) -> None:
    write(tmp_path / "run.json", {})
    for number, status in enumerate(statuses):
        write(tmp_path / f"submissions/{number}/request.json", {"number": number})
        if status is not None:
            write(tmp_path / f"submissions/{number}/status", f"{status}\n")
    record = collect(tmp_path)[str(tmp_path)]
    assert record.request.number == newest_request(tmp_path).number == counts
    assert record.submission.number == len(statuses) - 1


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_a_nodes_clock_that_is_wrong_makes_no_run_silent(tmp_path: Path, hours: float) -> None:
    """The node writes its own time; the file system tells when."""

    def beat(seconds_ago: float) -> float | None:
        told = time.time() + 3600 * hours
        for name, content in {
            "attempts/0/start.json": {"attempt": 0, "started": told - 5000},
            "heartbeat.json": {"time": told - seconds_ago, "step": 5},
        }.items():
            write(tmp_path / name, content)
            os.utime(tmp_path / name, (time.time() - seconds_ago,) * 2)
        return silence(collect(tmp_path)[str(tmp_path)])

    assert beat(5) == pytest.approx(5, abs=40)
    assert beat(900) == pytest.approx(900, abs=40), "a program that hangs is noticed all the same"
