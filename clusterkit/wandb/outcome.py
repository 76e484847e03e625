"""How a run stands, from what the scheduler and the job's records say; the log's last word is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from clusterkit.backends.base import JobState
from clusterkit.runs.run_dir import RunDirectory


class Outcome(StrEnum):
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
        return self is not Outcome.RUNNING

    @property
    def told(self) -> bool:
        """Whether the server is told of the end."""
        return self in (Outcome.FINISHED, Outcome.FAILED, Outcome.PREEMPTED)


_BY_STATE: Mapping[str, Outcome] = {
    JobState.COMPLETED: Outcome.FINISHED,
    JobState.FAILED: Outcome.FAILED,
    JobState.CANCELLED: Outcome.FAILED,
    JobState.TIMEOUT: Outcome.FAILED,
    JobState.OUT_OF_MEMORY: Outcome.FAILED,
    JobState.PREEMPTED: Outcome.PREEMPTED,
    JobState.NODE_FAIL: Outcome.CRASHED,
}


def outcome_of(state: str, run: RunDirectory | None) -> Outcome:
    """How a run stands. Pure.

    Args:
        state: the newest `JobState` that is known of its job.
        run: its run directory as it lies here; None when it cannot be read. It is newer than a state that is
            still active, since the job writes how it ended.
    """
    if run is not None and run.ended:
        last = run.attempts[-1].exit or {}
        return Outcome.FINISHED if last.get("why") == "completed" else Outcome.FAILED
    return _BY_STATE.get(state, Outcome.RUNNING)
