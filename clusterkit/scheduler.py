"""The scheduler interface that `slurm` and `local` fill.

Implementations are pure: they build argv and shell fragments and parse what came back; the verbs
run them over a transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class JobState(StrEnum):
    """States of a job, in Slurm's words (man sacct, JOB STATE CODES), which `local` uses too."""

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
    UNKNOWN = "UNKNOWN"

    @property
    def active(self) -> bool:
        """Whether the job may still run or is running."""
        return self in _ACTIVE


_ACTIVE = frozenset(
    {
        JobState.PENDING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.COMPLETING,
        JobState.REQUEUED,
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
    partition: str | None = None
    node: str | None = None
    start: str | None = None
    """Start or expected start, ISO 8601 local time of the cluster."""
    end: str | None = None
    elapsed_seconds: int | None = None
    limit_seconds: int | None = None
    exit_code: str | None = None
    """Slurm's `code:signal`."""
    restarts: int = 0


class Scheduler(Protocol):
    """Pure builders and parsers of one scheduler."""

    name: str

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv that submits the job script (an absolute path) and prints the job id."""
        ...

    def parse_submit(self, stdout: str) -> str:
        """The job id in the submit command's output. Raises SchedulerError when there is none."""
        ...

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv that cancels jobs; unknown or finished ids are not an error."""
        ...

    def query_script(self, job_ids: Sequence[str]) -> str:
        """A POSIX sh fragment that prints everything `parse_query` needs, and never fails."""
        ...

    def parse_query(self, stdout: str) -> Mapping[str, Job]:
        """Jobs by id; an id the scheduler no longer knows is absent."""
        ...
