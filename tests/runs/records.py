"""Records of one run, and what a scheduler may say of its job."""

from __future__ import annotations

from typing import Any

from clusterkit.backends.jobs import Job, JobState
from clusterkit.backends.slurm.explain import explain
from clusterkit.backends.submission import Submission
from clusterkit.runs.record import Attempt, RunRecord

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
    start: dict[str, Any] | None = START,
    cancel: dict[str, Any] | None = None,
) -> RunRecord:
    """What a run of a pack has left."""
    return record(exit, start=start, cancel=cancel, submissions=(Submission(0, pack=4),))


def job(state: str, reason: str | None = None, job_id: str = "7") -> Job:
    words = explain(reason) if reason else None
    vain = reason == "DependencyNeverSatisfied"
    return Job(job_id, JobState(state), state, reason=reason, explained=words, in_vain=vain)


def beating(**changes: Any) -> dict[str, Any]:
    beat = {"time": NOW - 10, "step": 250, "total_steps": 1000, "steps_per_second": 5.0, "success": 0.5}
    return beat | changes


def mute(**fields: Any) -> Job:
    """A job that nobody could be asked about."""
    return Job("7", JobState.UNKNOWN, "", reason="squeue failed: x", confirmed=False, **fields)
