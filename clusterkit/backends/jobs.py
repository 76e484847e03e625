"""Jobs as every backend speaks of them, and the names of what a scheduler itself writes about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class JobState(StrEnum):
    """States of a job. The names are those of man sacct, JOB STATE CODES, for every backend."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    REQUEUED = "REQUEUED"
    SUBMITTING = "SUBMITTING"
    """Ours: handed over, and it is not known yet whether there is a job."""
    NOT_SUBMITTED = "NOT_SUBMITTED"
    """Ours: handed over in vain; there is no job."""
    UNKNOWN = "UNKNOWN"

    @property
    def active(self) -> bool:
        """Whether the job may still run or is running."""
        return self in _ACTIVE

    @property
    def waiting(self) -> bool:
        """Whether it is in the queue."""
        return self in (JobState.PENDING, JobState.REQUEUED)


ENDS = {
    JobState.OUT_OF_MEMORY: "it used more main memory than it asked for: raise the profile's memory",
    JobState.TIMEOUT: "it reached its time limit",
    JobState.NODE_FAIL: "its node failed",
    JobState.PREEMPTED: "it had to make room for a job of higher priority",
    JobState.CANCELLED: "it was cancelled",
}
"""How jobs ended, in plain words."""


_ACTIVE = frozenset(
    {
        JobState.PENDING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.COMPLETING,
        JobState.REQUEUED,
        JobState.SUBMITTING,
    }
)


@dataclass(frozen=True)
class Job:
    """What a scheduler knows about one job."""

    job_id: str
    state: JobState
    raw_state: str
    """The scheduler's own text, kept also when we do not know it."""
    reason: str | None = None
    """Why it waits or why it ended, in the scheduler's words."""
    explained: str | None = None
    """The reason in plain words, with what can be done about it; None for one that is not known."""
    depends: bool = False
    """Whether it waits for another job to end."""
    in_vain: bool = False
    """Whether it can never start, because what it waits for has failed."""
    partition: str | None = None
    node: str | None = None
    start: str | None = None
    """Start or expected start, ISO 8601, UTC."""
    end: str | None = None
    elapsed_seconds: int | None = None
    limit_seconds: int | None = None
    exit_code: str | None = None
    """Slurm's `code:signal`."""
    restarts: int = 0
    confirmed: bool = True
    """False when the queue itself could not be asked: what accounting says may be out of date."""
    name: str | None = None
    """As it was submitted; ids come back when a cluster is set up anew, names do not."""


@dataclass(frozen=True)
class QueryResult:
    """What a scheduler says of jobs."""

    jobs: Mapping[str, Job]
    """By id. One that the scheduler no longer knows is absent. When it could not be asked, its jobs are
    UNKNOWN, with the cause as their reason."""
    trouble: str | None = None
    """Why the queue could not be asked; None when it could."""


@dataclass(frozen=True)
class Found:
    """What a scheduler says of jobs with a certain name."""

    ids: tuple[str, ...]
    certain: bool
    """Whether it could be asked: without an id, there is then no such job."""


def unix_seconds(text: str | None) -> float | None:
    """Unix seconds of a UTC time of the scheduler; None for none, or one without meaning."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None


SCHEDULER_LOG = "slurm.log"
"""In a run directory."""


GROUP_LOG = r"slurm-\d+(-\d+)?\.log"
"""Pattern of the logs in a group's folder; those of the runs are links to them."""


def group_log(part: int, task: int | str | None) -> str:
    """The log of a task, in the group's folder.

    Args:
        part: number of the submission.
        task: index in the job array, or what the scheduler replaces by it; None for a submission that is a
            single job.
    """
    return f"slurm-{part}.log" if task is None else f"slurm-{part}-{task}.log"
