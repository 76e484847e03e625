"""What clusterkit.runs.state makes of a verdict, a heartbeat and a time limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.backends.jobs import Job, JobResources, JobState
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.submission import Submission
from clusterkit.runs.record import Attempt, RunRecord
from clusterkit.runs.state import RunState, fold, remembered, to_text, tried_again
from tests.runs.records import COMPLETED, NOW, REQUEUE, START, beating, ending, job, mute, record


def test_progress() -> None:
    assert fold(record(heartbeat=beating()), job("RUNNING")) == RunState(
        JobState.RUNNING,
        progress=0.25,
        eta_seconds=140.0,  # its heartbeat is ten seconds old
        steps_per_second=5.0,
        success=0.5,
        elapsed_seconds=600.0,
        heartbeat_age=10.0,
        attempt=0,
        node="n1",
        job_id="7",
    )


def test_no_eta_once_it_has_ended() -> None:
    state = fold(record(COMPLETED, heartbeat=beating(step=1000)), None)
    assert (state.progress, state.eta_seconds, state.job_id) == (1.0, None, "7")


def test_seconds_of_a_bench_are_no_speed() -> None:
    state = fold(record(heartbeat=beating(phase="bench")), job("RUNNING"))
    assert (state.progress, state.eta_seconds, state.steps_per_second) == (0.25, 140.0, None)


@pytest.mark.parametrize(
    "beat",
    [
        {},
        {"step": None},
        {"step": "x", "total_steps": []},
        beating(total_steps=0),
        beating(steps_per_second=0),
    ],
)
def test_a_heartbeat_without_numbers(beat: dict[str, Any]) -> None:
    state = fold(record(heartbeat=beat), job("RUNNING"))
    assert (state.state, state.stale) == (JobState.RUNNING, False)


@pytest.mark.parametrize(
    ("silent", "started", "stale"),
    [(170, 600, False), (300, 600, True), (7300, 9000, True), (300, 60, False)],
)
def test_a_silent_program_may_hang(silent: float, started: float, stale: bool) -> None:
    run = record(start=START | {"started": NOW - started}, heartbeat=beating(time=NOW - silent))
    state = fold(run, job("RUNNING"))
    assert state.stale is stale
    if stale:
        assert state.why == f"no heartbeat for {'2 h' if silent > 7200 else '5 min'}: it may hang"


def test_programs_without_heartbeats_are_never_stale() -> None:
    assert not fold(record(), job("RUNNING")).stale
    assert not fold(record(COMPLETED, heartbeat=beating(time=0)), None).stale


MINUTES_AGO = RunState(JobState.PENDING, attempt=None, updated=NOW - 300)


@pytest.mark.parametrize(
    ("run", "last", "state", "why", "updated"),
    [
        (record(heartbeat=beating()), None, "RUNNING", "according to its heartbeat; squeue failed", NOW),
        (record(heartbeat=beating(time=NOW - 999)), None, "UNKNOWN", "squeue failed", NOW),
        (record(), None, "UNKNOWN", "squeue failed", NOW),
        (record(COMPLETED, heartbeat=beating()), None, "COMPLETED", None, NOW),
        (record(ending("failed", 3)), MINUTES_AGO, "FAILED", "the program ended with exit code 3", NOW),
        (RunRecord(now=NOW), MINUTES_AGO, "PENDING", "last known 5 min ago; squeue failed: x", NOW - 300),
        (RunRecord(now=NOW), RunState(JobState.FAILED, updated=1.0), "UNKNOWN", "squeue failed", NOW),
        (record(start=START | {"job_id": "6"}, heartbeat=beating()), None, "UNKNOWN", "squeue failed", NOW),
    ],
)
def test_when_nobody_can_be_asked(
    run: RunRecord, last: RunState | None, state: str, why: str | None, updated: float
) -> None:
    folded = fold(run, mute(), last=last, moment=NOW)
    assert (folded.state, folded.updated) == (state, updated)
    assert (folded.why or "").startswith(why or "")


def timed(elapsed: int, limit: int | None) -> Job:
    return Job("7", JobState.RUNNING, "RUNNING", elapsed_seconds=elapsed, limit_seconds=limit)


@pytest.mark.parametrize(
    ("elapsed", "limit", "until_done", "outlook"),
    [  # 140 seconds are left
        (600, 740, "", None),
        (600, 667, "", "will not finish: stops at its time limit at 60%"),
        (600, 667, "requeue", "will reach its time limit at 60% and be requeued"),
        (600, 667, "array", "will reach its time limit at 60% and continue in the next job"),
        (600, 739, "chain", "will reach its time limit at 99% and continue in the next job"),
        (600, 500, "", "will not finish: stops at its time limit at 25%"),
        (600, None, "", None),
    ],
)
def test_outlook(elapsed: int, limit: int | None, until_done: str, outlook: str | None) -> None:
    state = fold(record(heartbeat=beating()), timed(elapsed, limit), until_done=until_done)
    assert state.outlook == outlook


def test_a_run_that_goes_on_waits_between_two_attempts() -> None:
    assert fold(record(REQUEUE), mute(), until_done="requeue").state is JobState.PENDING
    assert fold(record(REQUEUE), mute()).state is JobState.PREEMPTED
    assert fold(record(REQUEUE), None, until_done="requeue").state is JobState.PREEMPTED


def test_the_limit_that_was_asked_for_where_nobody_tells() -> None:
    submissions = (Submission(0, options=("--time=1:00:00", "--time=30")),)
    limit = SlurmBackend().asked(record(submissions=submissions).request.options).seconds
    assert fold(record(submissions=submissions), None, limit=limit).limit_seconds == limit == 1800
    for odd in (None, {}, {"options": 7}, {"options": [None, "--time"]}):
        request = record(submissions=(Submission.recorded(0, odd),)).request
        assert SlurmBackend().asked(request.options).seconds is None


@pytest.mark.parametrize("value", ["²", "-1", "9" * 5000, f"{'9' * 400}G", f"{'9' * 5000}-00:00:00", "lots"])
def test_options_that_are_no_numbers_name_no_resources(value: str) -> None:
    options = [f"--{name}={value}" for name in ("cpus-per-task", "mem", "time")]
    assert SlurmBackend().asked(options) == JobResources()


def test_no_outlook_on_what_may_hang_or_has_ended() -> None:
    assert fold(record(heartbeat=beating(time=NOW - 999)), timed(600, 601)).outlook is None
    assert fold(record(COMPLETED, heartbeat=beating()), timed(600, 601)).outlook is None


def test_the_rate_does_not_jump() -> None:
    before = RunState(JobState.RUNNING, steps_per_second=10.0, attempt=0, updated=NOW - 1)
    run = record(heartbeat=beating())
    soon = fold(run, job("RUNNING"), last=before, moment=NOW).steps_per_second
    late = fold(run, job("RUNNING"), last=before, moment=NOW + 1800).steps_per_second
    assert soon == pytest.approx(10, abs=0.3)
    assert late == pytest.approx(5, abs=0.1)
    other = RunState(JobState.RUNNING, steps_per_second=10.0, attempt=7, updated=NOW - 1)
    assert fold(run, job("RUNNING"), last=other, moment=NOW).steps_per_second == 5


@pytest.mark.parametrize(
    ("began", "beat", "rate"),
    [
        ({}, {}, 250 / 590),  # in the 590 s between its start and its heartbeat
        ({"step": 200}, {}, 50 / 590),
        ({"step": 250}, {}, None),
        ({"step": 400}, {}, None),  # it went back to a checkpoint
        ({}, {"time": NOW - 700}, None),  # of the attempt before
        ({"started": None}, {}, None),
        ({}, {"steps_per_second": 3.0}, 3.0),
    ],
)
def test_the_rate_of_a_program_that_gives_none(
    began: dict[str, Any], beat: dict[str, Any], rate: float | None
) -> None:
    heartbeat = beating() | {"steps_per_second": None} | beat
    state = fold(record(start=START | began, heartbeat=heartbeat), job("RUNNING"))
    assert state.steps_per_second == (None if rate is None else pytest.approx(rate))
    assert (state.eta_seconds is None) is (rate is None)


def looks(beats: list[tuple[float, dict[str, Any]]], began: float) -> list[RunState]:
    """The states of a run that is looked at again and again; each beat with its moment."""
    states: list[RunState] = []
    for moment, beat in beats:
        found = record(start=START | {"started": began}, heartbeat={"attempt": 0, "time": moment} | beat)
        last = states[-1] if states else None
        states.append(fold(replace(found, now=moment), job("RUNNING"), last=last, moment=moment))
    return states


def test_a_start_up_is_in_no_rate_and_in_no_time_left() -> None:
    early = [(NOW + at, {"step": at * 40, "steps_per_second": None}) for at in range(1, 18)]
    later = [(NOW + at, {"step": at * 1500 - 24820, "steps_per_second": 1500.0}) for at in range(18, 30)]
    total = {"total_steps": 256_000}
    states = looks([(moment, beat | total) for moment, beat in (*early, *later)], NOW)
    assert {(state.steps_per_second, state.eta_seconds) for state in states[: len(early)]} == {(None, None)}
    assert states[len(early)].steps_per_second == pytest.approx(1500)
    assert states[-1].eta_seconds == pytest.approx((256_000 - 18_680) / 1500)


def test_a_program_without_a_rate_is_timed_from_look_to_look() -> None:
    beats = [(NOW + at, {"step": 0}) for at in range(60)]  # 60 s of start-up
    beats += [(NOW + 60 + at, {"step": 20 * at}) for at in range(1, 60)]
    rates = [state.steps_per_second for state in looks(beats, NOW)]
    assert rates[:63] == [None] * 63
    assert rates[70] == pytest.approx(20, abs=4)
    assert rates[-1] == pytest.approx(20, abs=2)
    slower = [(NOW + 120 + at, {"step": 1200 + 5 * at}) for at in range(180)]
    assert looks(beats + slower, NOW)[-1].steps_per_second == pytest.approx(5, abs=1)


def test_the_rate_of_what_has_ended_is_that_of_its_attempt() -> None:
    evaluated = beating(step=1000, steps_per_second=0.0)  # for longer than its window
    state = fold(record(COMPLETED, start=START, heartbeat=evaluated), None)
    assert state.steps_per_second == pytest.approx(1000 / 590)
    idle = fold(record(COMPLETED, start=START | {"step": 1000}, heartbeat=beating(step=1000)), None)
    assert idle.steps_per_second == 5.0, "its heartbeat knows more than nothing"


def test_the_expected_start_of_what_waits() -> None:
    def waiting(start: str | None) -> Job:
        return Job("7", JobState.PENDING, "PENDING", reason="Priority", start=start)

    assert fold(RunRecord(now=NOW), waiting("1970-01-01T03:00:00")).expected_start == 10800
    for start in ("1970-01-01T01:00:00", "N/A", None):
        assert fold(RunRecord(now=NOW), waiting(start)).expected_start is None
    for ahead, by_this_clock in ((3600, 14400), (-3600, 7200), (1, 10800)):  # clocks that differ, or hardly
        state = fold(RunRecord(now=NOW), waiting("1970-01-01T03:00:00"), moment=NOW + ahead)
        assert state.expected_start == by_this_clock


def test_gpu_use_and_times() -> None:
    gpu = {"utilization": 0.75, "name": "A40"}
    state = fold(record(heartbeat=beating(gpu=gpu)), timed(30, 60))
    assert (state.gpu, state.elapsed_seconds, state.limit_seconds) == (0.75, 30, 60)
    assert fold(record(COMPLETED, heartbeat=beating(gpu=gpu)), None).gpu is None
    assert fold(record(COMPLETED), None).elapsed_seconds == 595
    assert fold(record(), None).elapsed_seconds is None


def test_a_few_of_the_files_that_cannot_be_read_are_named() -> None:
    whys = [fold(RunRecord(unreadable=("a", "b", "c", "d", "e")[:many]), None).why for many in (3, 5)]
    assert ["more" in (why or "") for why in whys] == [False, True]


def test_a_state_is_remembered_as_it_was() -> None:
    state = fold(record(heartbeat=beating()), timed(600, 660), until_done="chain", moment=NOW)
    assert remembered(to_text(state)) == state
    assert remembered(to_text(state).replace('"final"', '"of a later version"')) == state
    for text in ("", "[]", "{}", '{"state": "HIBERNATED"}'):
        assert remembered(text) is None


KEYS = ["code", "signal", "why", "job_id", "node", "started", "ended", "time", "submission"]
KEYS += ["step", "total_steps", "steps_per_second", "success", "gpu"]
json_value = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([])
json_object = st.none() | st.dictionaries(
    st.sampled_from(KEYS),
    json_value,
)


@pytest.mark.slow
@given(
    attempts=st.lists(st.tuples(json_object, json_object, json_object), max_size=3),
    heartbeat=json_object,
    state=st.none() | st.sampled_from(JobState),
    last=st.none() | st.sampled_from(JobState).map(lambda state: RunState(state, updated=1.0)),
)
def test_any_record_gives_an_answer(
    attempts: list[tuple[Any, Any, Any]], heartbeat: Any, state: JobState | None, last: RunState | None
) -> None:
    run = RunRecord(
        attempts=tuple(Attempt(number, *files) for number, files in enumerate(attempts)),
        heartbeat=heartbeat,
        now=NOW,
    )
    known = None if state is None else Job("7", state, state, confirmed=len(attempts) > 1, limit_seconds=9)
    folded = fold(run, known, last=last, moment=NOW)
    assert isinstance(folded.state, JobState)
    assert folded.why is None or "\n" not in folded.why
    assert remembered(to_text(folded)) == folded
    assert not (folded.final and folded.state.active)


AGAIN = {"kind": "retry", "retry": "with 120M after out of memory"}


@pytest.mark.parametrize(
    ("requests", "starts", "said"),
    [
        ([{"kind": "first"}], [{"submission": 0}], None),
        ([{"kind": "first"}, AGAIN], [{"submission": 0}], "try 2, with 120M after out of memory"),
        (
            [{"kind": "first"}, AGAIN],
            [{"submission": 0}, {"submission": 1, "retry": "after node n1 failed"}],
            "try 3, after node n1 failed",
        ),
        ([{"kind": "first"}, AGAIN, {"kind": "chain"}], [], "try 2, with 120M after out of memory"),
        ([{"kind": "first"}, AGAIN, {"kind": "resume"}], [], None),
        ([{"kind": "first"}, {"kind": "retry", "retry": 7}], [], "try 2, again"),
    ],
)
def test_tries(requests: list[dict[str, Any]], starts: list[dict[str, Any]], said: str | None) -> None:
    submissions = tuple(Submission.recorded(number, request) for number, request in enumerate(requests))
    attempts = tuple(Attempt(number, start) for number, start in enumerate(starts))
    assert tried_again(RunRecord(submissions=submissions, attempts=attempts)) == said


def test_a_refused_job_was_no_try() -> None:
    refused = Submission.recorded(1, AGAIN, status=1, error="no")
    assert tried_again(RunRecord(submissions=(Submission(0), refused))) is None
