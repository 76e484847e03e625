"""Folds what the scheduler and the run directory say into the one state of a run. Pure.

The first rule that fits decides:

| scheduler | run directory | state |
|---|---|---|
| anything | of a pack, exit record of this job: completed, failed, container | by the exit record |
| still active, OUT_OF_MEMORY | of a pack, exit record of this job: signalled | by the exit record |
| OUT_OF_MEMORY | anything | OUT_OF_MEMORY, whatever the exit code |
| anything | exit record of this job: completed | COMPLETED, even while the scheduler lags |
| PENDING, REQUEUED | | the scheduler's |
| RUNNING, SUSPENDED, COMPLETING | exit record of this job: failed, container | by the exit record |
| RUNNING, SUSPENDED, COMPLETING | otherwise | the scheduler's; stale without a heartbeat for 3 minutes |
| TIMEOUT, CANCELLED, NODE_FAIL, PREEMPTED | | the scheduler's |
| gone, or anything else | cancel asked, exit record not completed or none | CANCELLED |
| gone, or anything else | exit record | by the exit record |
| COMPLETED, FAILED | no exit record | the scheduler's |
| UNKNOWN | no exit record | UNKNOWN |
| gone | started, no exit record | FAILED: the node failed or everything was killed at once |
| gone | never started | FAILED: it left the queue without a start |

By the exit record: completed -> COMPLETED, requeue -> PREEMPTED (checkpointed, wants to go on), timeout ->
TIMEOUT, failed, signalled and container -> FAILED.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.record import Attempt, RunRecord, collect_script, parse_collect
from clusterkit.scheduler import Job, JobState
from clusterkit.slurm.explain import explain

__all__ = ["Attempt", "RunRecord", "RunState", "collect_script", "fold", "parse_collect"]

STALE_SECONDS = 180.0
"""A running program that writes heartbeats and has been silent for longer may hang."""

_WAITING = frozenset({JobState.PENDING, JobState.REQUEUED})
_SCHEDULER_KNOWS_BEST = frozenset(
    {JobState.TIMEOUT, JobState.CANCELLED, JobState.NODE_FAIL, JobState.PREEMPTED}
)
_IN_VAIN = "a run that it was to start after has not completed, so it never started"
_CHECKPOINTED = "it checkpointed and can be resumed"


@dataclass(frozen=True)
class RunState:
    """Where a run stands."""

    state: JobState
    why: str | None = None
    """One line in plain words: why it waits, ended or may hang."""
    progress: float | None = None
    """Share of the steps done, 0..1."""
    eta_seconds: float | None = None
    """Until the last step at the present rate; only while it runs."""
    steps_per_second: float | None = None
    success: float | None = None
    """Success rate of the last evaluation, 0..1."""
    attempt: int | None = None
    """Number of the newest start; None before the first."""
    node: str | None = None
    job_id: str | None = None
    stale: bool = False
    """It should be running but its heartbeat has stopped."""


def fold(record: RunRecord, job: Job | None) -> RunState:
    """The state of a run.

    Args:
        record: its run directory's files.
        job: what the scheduler knows of the job submitted last; None when it knows nothing (any more).
    """
    newest = record.started
    start: Mapping[str, Any] = (newest.start if newest else None) or {}
    heartbeat = record.heartbeat or {}
    state, why = _state(record, job)
    running = state is JobState.RUNNING
    silence = _silence(record, start) if running else None
    stale = silence is not None and silence > STALE_SECONDS
    if stale and silence is not None:
        why = f"no heartbeat for {_duration(silence)}: it may hang"
    rate = _number(heartbeat, "steps_per_second")
    step, total = _number(heartbeat, "step"), _number(heartbeat, "total_steps")
    progress = remaining = None
    if step is not None and total:
        progress, remaining = min(1.0, max(0.0, step / total)), max(0.0, total - step)
    return RunState(
        state=state,
        why=why,
        progress=progress,
        eta_seconds=remaining / rate if running and remaining is not None and rate else None,
        steps_per_second=rate,
        success=_number(heartbeat, "success"),
        attempt=newest.number if newest else None,
        node=(job.node if job else None) or start.get("node"),
        job_id=job.job_id if job else start.get("job_id"),
        stale=stale,
    )


def _state(record: RunRecord, job: Job | None) -> tuple[JobState, str | None]:
    """State and why, by the table above."""
    newest = record.started
    ended = newest.exit if newest is not None and _same_job(newest, job) else None
    if ended is not None and record.packed and _ended_alone(ended, job):
        return _by_exit(ended, cancelled=record.cancelled)
    if job is not None and job.state is JobState.OUT_OF_MEMORY:
        return job.state, explain("OUT_OF_MEMORY")
    if ended is not None and ended.get("why") == "completed":
        return JobState.COMPLETED, None
    if job is not None and job.state in _WAITING:
        return job.state, _words(job)
    if job is not None and job.state.active:
        # Who sent a signal, and why, the scheduler tells in a moment.
        if ended is not None and ended.get("why") in ("failed", "container"):
            return _by_exit(ended, cancelled=record.cancelled)
        return job.state, "it is being cancelled" if record.cancelled else _words(job)
    if job is not None and job.state in _SCHEDULER_KNOWS_BEST:
        checkpointed = ended is not None and ended.get("why") == "requeue"
        in_vain = job.state is JobState.CANCELLED and job.reason == "DependencyNeverSatisfied"
        words = _IN_VAIN if in_vain else explain(job.state.value)
        return job.state, _joined(words, _CHECKPOINTED if checkpointed else None)
    if ended is not None:
        return _by_exit(ended, cancelled=record.cancelled)
    if record.cancelled:
        return JobState.CANCELLED, record.cancel_detail or explain("CANCELLED")
    if job is not None:
        if job.state is JobState.COMPLETED:
            return job.state, "the scheduler says so; it left no exit record"
        return job.state, _words(job) or f"the scheduler says {job.raw_state or 'nothing'}"
    if not record.exists:
        return JobState.UNKNOWN, "its run directory is gone and the scheduler does not know it"
    if newest is not None:
        return (
            JobState.FAILED,
            "it ended without an exit record: its node failed, or all of it was killed at once",
        )
    return JobState.FAILED, "it left the queue without having started; slurm.log may say why"


def _ended_alone(ended: Mapping[str, Any], job: Job | None) -> bool:
    """Whether a run of a pack has come to its own end, whatever becomes of the job it shared."""
    why = ended.get("why")
    shared = job is not None and (job.state.active or job.state is JobState.OUT_OF_MEMORY)
    return why in ("completed", "failed", "container") or (shared and why == "signalled")


def _by_exit(record: Mapping[str, Any], *, cancelled: bool) -> tuple[JobState, str | None]:
    why, code, signal = record.get("why"), record.get("code"), record.get("signal")
    if why == "completed":
        return JobState.COMPLETED, None
    if cancelled:
        return JobState.CANCELLED, _joined("it was cancelled", _CHECKPOINTED if why == "requeue" else None)
    if why == "requeue":
        return JobState.PREEMPTED, _joined(
            f"SIG{signal} stopped it early" if signal else "it stopped early", _CHECKPOINTED
        )
    if why == "timeout":
        return JobState.TIMEOUT, explain("TIMEOUT")
    if why == "container":
        return JobState.FAILED, str(record.get("detail") or "the container did not start; its log says why")
    if why == "signalled" and signal == "KILL":
        return JobState.FAILED, "SIGKILL ended the program: often too little memory"
    if why == "signalled":
        return JobState.FAILED, f"SIG{signal} ended the program"
    return JobState.FAILED, f"the program ended with exit code {code}"


def _same_job(attempt: Attempt, job: Job | None) -> bool:
    """Whether an attempt is one of this job, or of any when the scheduler does not know the job."""
    recorded = str((attempt.start or {}).get("job_id") or "")
    if job is None or not recorded:
        return True
    number = job.job_id.partition(";")[0]
    return recorded == number or recorded.startswith(f"{number}_")


def _words(job: Job) -> str | None:
    """The reason in plain words, else as the scheduler gives it."""
    if job.reason is None:
        return None
    return explain(job.reason) or job.reason


def _silence(record: RunRecord, start: Mapping[str, Any]) -> float | None:
    """Seconds since the newest sign of life of a program that writes heartbeats."""
    beat = _number(record.heartbeat or {}, "time")
    if beat is None or record.now is None:
        return None
    # The heartbeat of an earlier attempt says nothing before this one had time to write its own.
    return record.now - max(beat, _number(start, "started") or 0.0)


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _joined(first: str | None, second: str | None) -> str | None:
    return "; ".join(part for part in (first, second) if part) or None
