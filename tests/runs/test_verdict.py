"""The table in clusterkit.runs.verdict, row by row."""

from __future__ import annotations

import pytest

from clusterkit.backends.jobs import Job, JobState
from clusterkit.runs.record import Attempt, RunRecord
from clusterkit.runs.verdict import verdict
from tests.runs.records import COMPLETED, NOW, REQUEUE, START, ending, job, mute, packed, record


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
        (packed(ending("signalled", 137, "KILL")), job("RUNNING"), "FAILED", "memory ran out"),
        (packed(ending("signalled", 143, "TERM"), cancel={}), job("RUNNING"), "CANCELLED", "was cancelled"),
        (packed(ending("signalled", 143, "TERM")), job("CANCELLED"), "CANCELLED", "was cancelled"),
        (packed(ending("signalled", 143, "TERM")), job("COMPLETING"), "COMPLETING", None),
        (packed(ending("signalled", 143, "TERM")), job("PENDING", None), "PENDING", None),
        (packed(ending("signalled", 143, "TERM"), cancel={}), job("PENDING", None), "CANCELLED", "cancelled"),
        (packed(ending("signalled", 137, "KILL")), job("PENDING", None), "FAILED", "memory ran out"),
        (packed(REQUEUE), job("RUNNING"), "RUNNING", None),
        (packed(REQUEUE), job("PENDING", reason="Priority"), "PENDING", "ahead of it"),
        (packed(REQUEUE, cancel={}), job("PENDING"), "CANCELLED", "pending for other runs"),
        (packed(start=None, cancel={}), job("PENDING"), "CANCELLED", "pending for other runs"),
        (record(start=None, cancel={}), job("PENDING", reason="Priority"), "PENDING", "ahead of it"),
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
        (record(ending("signalled", 137, "KILL")), None, "FAILED", "memory ran out"),
        (record(ending("timeout", 143, "TERM")), None, "TIMEOUT", "time limit"),
        (record(REQUEUE), None, "PREEMPTED", "SIGUSR1 stopped it early; it checkpointed"),
        (record(REQUEUE), job("FAILED"), "PREEMPTED", "can be resumed"),
        (record(REQUEUE, cancel={}), None, "CANCELLED", "it checkpointed"),
        (record(ending("signalled", 143, "TERM"), cancel={}), None, "CANCELLED", "was cancelled"),
        (record(COMPLETED, cancel={}), None, "COMPLETED", None),
        # Several runs share a job, which lives on without this one.
        (record(ending("signalled", 143, "TERM"), cancel={}), job("RUNNING"), "CANCELLED", "was cancelled"),
        (
            record(ending("signalled", 137, "KILL") | {"ended": NOW - 300}),
            job("RUNNING"),
            "FAILED",
            "SIGKILL",
        ),
        (record(REQUEUE | {"ended": NOW - 300}), job("RUNNING"), "RUNNING", None),
        # It would have gone on, but made no progress.
        (
            record(REQUEUE, stopped={"why": "no progress", "time": NOW}),
            job("FAILED"),
            "FAILED",
            "no progress",
        ),
        (record(REQUEUE, stopped={"why": "no progress", "time": NOW}), None, "FAILED", "no progress"),
        (record(REQUEUE, stopped={"why": "no progress", "time": 1}), None, "PREEMPTED", "can be resumed"),
        (record(REQUEUE, stopped={}, cancel={}), None, "CANCELLED", "it was cancelled"),
        # No exit record.
        (record(), None, "FAILED", "without an exit record"),
        (record(cancel={}), None, "CANCELLED", "was cancelled"),
        (RunRecord(attempts=(Attempt(0, cancel={}),)), None, "CANCELLED", "was cancelled"),
        (RunRecord(), None, "FAILED", "without starting"),
        (RunRecord(), job("FAILED", "BadConstraints"), "FAILED", "no node has"),
        (RunRecord(), job("COMPLETED"), "COMPLETED", "no exit record"),
        (record(), job("UNKNOWN", "squeue failed: x"), "UNKNOWN", "squeue failed: x"),
        (RunRecord(exists=False), None, "UNKNOWN", "run directory is gone"),
    ],
)
def test_rules(run: RunRecord, known: Job | None, state: str, why: str | None) -> None:
    judged = verdict(run, known)
    assert judged.state == state
    assert (why is None and judged.why is None) or (why is not None and why in str(judged.why))


@pytest.mark.parametrize(
    ("run", "known", "final"),
    [
        (record(COMPLETED), job("RUNNING"), True),
        (record(COMPLETED), mute(), True),
        (record(ending("failed")), None, True),
        (record(ending("failed")), job("FAILED"), True),
        (record(), None, True),
        # The scheduler may still learn that memory was the cause.
        (record(ending("failed")), job("COMPLETING"), False),
        # A shared file system may not show the exit record yet.
        (record(), Job("7", JobState.FAILED, "FAILED", end="1970-01-01T02:46:30"), False),
        (record(), Job("7", JobState.FAILED, "FAILED", end="1970-01-01T02:40:00"), True),
        (record(), Job("7", JobState.FAILED, "FAILED", end="a while ago"), True),
        # Accounting may not know yet that it was requeued.
        (record(), Job("7", JobState.NODE_FAIL, "NODE_FAIL", confirmed=False), False),
        (record(), job("RUNNING"), False),
        (RunRecord(exists=False), None, False),
    ],
)
def test_what_is_asked_about_again(run: RunRecord, known: Job | None, final: bool) -> None:
    assert verdict(run, known).final is final
