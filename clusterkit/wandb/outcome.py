"""How a run stands, from what the scheduler and the job's records say; the log's last word is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from clusterkit.backends.jobs import JobState
from clusterkit.runs.run_dir import RunDirectory


class UploadOutcome(StrEnum):
    """What W&B is to show."""

    RUNNING = "running"
    """It runs, or will be started again."""
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    """The scheduler took it away, and may or may not start it again."""
    CRASHED = "crashed"
    """Its node failed. W&B says so by itself of a run that is silent, so nothing is told."""

    @property
    def over(self) -> bool:
        """Whether nobody writes its logs now."""
        return self is not UploadOutcome.RUNNING

    @property
    def told(self) -> bool:
        """Whether the server is told of the end."""
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
    """How a run stands. Pure.

    Args:
        state: the newest `JobState` that is known of its job.
        run: its run directory as it lies here; None when it cannot be read. It is newer than a state that is
            still active, since the job writes how it ended.
    """
    if run is not None and run.ended:
        last = run.attempts[-1].exit or {}
        return UploadOutcome.FINISHED if last.get("why") == "completed" else UploadOutcome.FAILED
    return _BY_STATE.get(state, UploadOutcome.RUNNING)
