"""The table in clusterkit.state, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.record import Attempt, RunRecord
from clusterkit.scheduler import Job, JobState
from clusterkit.state import RunState, fold
from clusterkit.submission import Submission

NOW = 10_000.0
START = {"attempt": 0, "job_id": "7", "node": "n1", "started": NOW - 600}


def ending(why: str, code: int = 1, signal: str | None = None) -> dict[str, Any]:
    return {"code": code, "signal": signal, "why": why, "ended": NOW - 5}


COMPLETED = ending("completed", 0)
REQUEUE = ending("requeue", 85, "USR1")


def record(
    exit: dict[str, Any] | None = None,  # noqa: A002
    *,
    start: dict[str, Any] | None = START,
    cancel: dict[str, Any] | None = None,
    **fields: Any,
) -> RunRecord:
    return RunRecord(attempts=(Attempt(0, start, exit, cancel),), now=NOW, **fields)


def packed(
    exit: dict[str, Any] | None = None,  # noqa: A002
    *,
    cancel: dict[str, Any] | None = None,
) -> RunRecord:
    return record(exit, cancel=cancel, submissions=(Submission(0, {"pack": 4}),))


def job(state: str, reason: str | None = None, job_id: str = "7") -> Job:
    return Job(job_id, JobState(state), state, reason=reason)


@pytest.mark.parametrize(
    ("run", "known", "state", "why"),
    [
        # The scheduler leads while the job is alive ...
        (RunRecord(now=NOW), job("PENDING", "Resources"), "PENDING", "next in line"),
        (RunRecord(now=NOW), job("PENDING", "NewReason"), "PENDING", "NewReason"),
        (record(REQUEUE), job("PENDING", "BeginTime"), "PENDING", "after a requeue"),
        (record(ending("failed")), job("PENDING", None, job_id="8"), "PENDING", None),
        (record(), job("RUNNING"), "RUNNING", None),
        (record(REQUEUE), job("RUNNING"), "RUNNING", None),
        (record(cancel={}), job("RUNNING"), "RUNNING", "being cancelled"),
        (record(), job("SUSPENDED"), "SUSPENDED", None),
        # ... but not over an exit record.
        (record(COMPLETED), job("RUNNING"), "COMPLETED", None),
        (record(COMPLETED), job("COMPLETING"), "COMPLETED", None),
        (record(ending("failed", 3)), job("RUNNING"), "FAILED", "exit code 3"),
        (record(ending("signalled", 143, "TERM")), job("COMPLETING"), "COMPLETING", None),
        (record(COMPLETED), job("FAILED"), "COMPLETED", None),
        (record(COMPLETED), job("UNKNOWN", "squeue failed: x"), "COMPLETED", None),
        # Another job's exit record says nothing about this one.
        (record(COMPLETED), job("RUNNING", job_id="8"), "RUNNING", None),
        (record(COMPLETED, start=START | {"job_id": "7_3"}), job("RUNNING"), "COMPLETED", None),
        (record(COMPLETED), job("RUNNING", job_id="7;north"), "COMPLETED", None),
        # A run of a pack ends alone.
        (packed(COMPLETED), job("OUT_OF_MEMORY"), "COMPLETED", None),
        (packed(ending("failed", 3)), job("TIMEOUT"), "FAILED", "exit code 3"),
        (packed(ending("signalled", 137, "KILL")), job("RUNNING"), "FAILED", "too little memory"),
        (packed(ending("signalled", 143, "TERM"), cancel={}), job("RUNNING"), "CANCELLED", "was cancelled"),
        (packed(ending("signalled", 143, "TERM")), job("CANCELLED"), "CANCELLED", "was cancelled"),
        (packed(REQUEUE), job("RUNNING"), "RUNNING", None),
        (packed(), job("OUT_OF_MEMORY"), "OUT_OF_MEMORY", "memory"),
        # It was to start after another one.
        (RunRecord(now=NOW), job("CANCELLED", "DependencyNeverSatisfied"), "CANCELLED", "never started"),
        (record(start=None, cancel={"detail": "x has failed"}), None, "CANCELLED", "x has failed"),
        # What only the scheduler can know.
        (record(COMPLETED), job("OUT_OF_MEMORY"), "OUT_OF_MEMORY", "raise the profile's memory"),
        (record(ending("signalled", 137, "KILL")), job("OUT_OF_MEMORY"), "OUT_OF_MEMORY", "memory"),
        (record(), job("NODE_FAIL"), "NODE_FAIL", "its node failed"),
        (record(), job("TIMEOUT"), "TIMEOUT", "reached its time limit"),
        (record(REQUEUE), job("TIMEOUT"), "TIMEOUT", "can be resumed"),
        (record(REQUEUE), job("CANCELLED"), "CANCELLED", "can be resumed"),
        (record(), job("PREEMPTED"), "PREEMPTED", "higher priority"),
        # The exit record, when the scheduler has forgotten the job or only knows that it failed.
        (record(ending("failed", 2)), None, "FAILED", "exit code 2"),
        (record(ending("failed", 2)), job("FAILED", "NonZeroExitCode"), "FAILED", "exit code 2"),
        (record(ending("container", 255)), None, "FAILED", "the container did not start"),
        (record(ending("signalled", 139, "SEGV")), None, "FAILED", "SIGSEGV"),
        (record(ending("signalled", 137, "KILL")), None, "FAILED", "too little memory"),
        (record(ending("timeout", 143, "TERM")), None, "TIMEOUT", "time limit"),
        (record(REQUEUE), None, "PREEMPTED", "SIGUSR1 stopped it early; it checkpointed"),
        (record(REQUEUE), job("FAILED"), "PREEMPTED", "can be resumed"),
        (record(REQUEUE, cancel={}), None, "CANCELLED", "it checkpointed"),
        (record(ending("signalled", 143, "TERM"), cancel={}), None, "CANCELLED", "was cancelled"),
        (record(COMPLETED, cancel={}), None, "COMPLETED", None),
        # No exit record.
        (record(), None, "FAILED", "without an exit record"),
        (record(cancel={}), None, "CANCELLED", "was cancelled"),
        (RunRecord(attempts=(Attempt(0, cancel={}),)), None, "CANCELLED", "was cancelled"),
        (RunRecord(), None, "FAILED", "without having started"),
        (RunRecord(), job("FAILED", "BadConstraints"), "FAILED", "no node has"),
        (RunRecord(), job("COMPLETED"), "COMPLETED", "no exit record"),
        (record(), job("UNKNOWN", "squeue failed: x"), "UNKNOWN", "squeue failed: x"),
        (RunRecord(exists=False), None, "UNKNOWN", "run directory is gone"),
    ],
)
def test_rules(run: RunRecord, known: Job | None, state: str, why: str | None) -> None:
    folded = fold(run, known)
    assert folded.state == state
    assert (why is None and folded.why is None) or (why is not None and why in str(folded.why))


def beating(**changes: Any) -> dict[str, Any]:
    beat = {"time": NOW - 10, "step": 250, "total_steps": 1000, "steps_per_second": 5.0, "success": 0.5}
    return beat | changes


def test_progress() -> None:
    assert fold(record(heartbeat=beating()), job("RUNNING")) == RunState(
        JobState.RUNNING,
        progress=0.25,
        eta_seconds=150.0,
        steps_per_second=5.0,
        success=0.5,
        attempt=0,
        node="n1",
        job_id="7",
    )


def test_no_eta_once_it_has_ended() -> None:
    state = fold(record(COMPLETED, heartbeat=beating(step=1000)), None)
    assert (state.progress, state.eta_seconds, state.job_id) == (1.0, None, "7")


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


json_value = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([])
json_object = st.none() | st.dictionaries(
    st.sampled_from(["code", "signal", "why", "job_id", "node", "started", "time", "step", "total_steps"]),
    json_value,
)


@given(
    attempts=st.lists(st.tuples(json_object, json_object, json_object), max_size=3),
    heartbeat=json_object,
    state=st.none() | st.sampled_from(JobState),
)
def test_any_record_gives_an_answer(
    attempts: list[tuple[Any, Any, Any]], heartbeat: Any, state: JobState | None
) -> None:
    run = RunRecord(
        attempts=tuple(Attempt(number, *files) for number, files in enumerate(attempts)),
        heartbeat=heartbeat,
        now=NOW,
    )
    folded = fold(run, None if state is None else Job("7", state, state))
    assert isinstance(folded.state, JobState)
    assert folded.why is None or "\n" not in folded.why
