"""A run's outcome for W&B, from the scheduler and the job's records, not from the log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from clusterkit.backends.jobs import JobState
from clusterkit.runs.run_dir import RunDirectory


class UploadOutcome(StrEnum):
    """The state that W&B should show."""

    RUNNING = "running"
    """It is running or will be restarted."""
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    """The scheduler preempted it and may restart it."""
    CRASHED = "crashed"
    """Its node failed. W&B detects silent runs itself, so nothing is sent."""

    @property
    def over(self) -> bool:
        """Whether nothing is writing its logs now."""
        return self is not UploadOutcome.RUNNING

    @property
    def told(self) -> bool:
        """Whether the server is told about the end."""
        return self in (UploadOutcome.FINISHED, UploadOutcome.FAILED, UploadOutcome.PREEMPTED)


_BY_STATE: Mapping[str, UploadOutcome] = {
    JobState.COMPLETED: UploadOutcome.FINISHED,
    JobState.FAILED: UploadOutcome.FAILED,
    JobState.CANCELLED: UploadOutcome.FAILED,
    JobState.TIMEOUT: UploadOutcome.FAILED,
    JobState.OUT_OF_MEMORY: UploadOutcome.FAILED,
    JobState.PREEMPTED: UploadOutcome.PREEMPTED,
    JobState.NODE_FAIL: UploadOutcome.CRASHED,
}


def outcome_of(state: str, run: RunDirectory | None) -> UploadOutcome:
    """The outcome of a run. Pure.

    Args:
        state: the newest known `JobState` of its job.
        run: its pulled run directory; None if unreadable. It overrides an active state, because the job
            records its own end.
    """
    if run is not None and run.ended:
        last = run.attempts[-1].exit or {}
        return UploadOutcome.FINISHED if last.get("why") == "completed" else UploadOutcome.FAILED
    return _BY_STATE.get(state, UploadOutcome.RUNNING)
