"""What is said of jobs to a backend and by it: states and starts, what a job waits for and asks, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal


class JobState(StrEnum):
    """States of a job; for every backend named as in man sacct, JOB STATE CODES."""

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
    """Ours: submitted, but whether there is a job is not known yet."""
    DEFERRED = "DEFERRED"
    """Ours: a job of its group submits it when the queue has room."""
    NOT_SUBMITTED = "NOT_SUBMITTED"
    """Ours: the submission failed; there is no job."""
    UNKNOWN = "UNKNOWN"

    @property
    def active(self) -> bool:
        """Whether the job is running or may still run."""
        return self in _ACTIVE

    @property
    def waiting(self) -> bool:
        """Whether the job is in the queue."""
        return self in (JobState.PENDING, JobState.REQUEUED)


ENDS = {
    JobState.OUT_OF_MEMORY: "it used more main memory than it requested: raise the profile's memory",
    JobState.TIMEOUT: "it reached its time limit",
    JobState.NODE_FAIL: "its node failed",
    JobState.PREEMPTED: "it was preempted by a job with a higher priority",
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
        JobState.DEFERRED,
    }
)

PATIENCE_SECONDS = 150.0
"""Seconds that a started submit command may take to reach the scheduler."""
DOUBTFUL = "time(d )?out|unable to contact|connection|communication|zero bytes|receive|write|no space"
"""Errors of a submit command, in any case, after which the scheduler may nevertheless have the job."""


@dataclass(frozen=True)
class Job:
    """A scheduler's record of one job."""

    job_id: str
    state: JobState
    raw_state: str
    """The scheduler's own text, also for unknown states."""
    reason: str | None = None
    """Why it waits or ended, in the scheduler's words."""
    explained: str | None = None
    """The reason in plain words, with a remedy; None for an unknown reason."""
    depends: bool = False
    """Whether it waits for another job to end."""
    in_vain: bool = False
    """Whether it can never start because its dependency failed."""
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
    """False when the queue did not answer, so that accounting's record may be out of date."""
    name: str | None = None
    """The submitted name. Ids repeat when a cluster is reinstalled; names do not."""


@dataclass(frozen=True)
class QueryResult:
    """A scheduler's answer about jobs."""

    jobs: Mapping[str, Job]
    """By id. Jobs the scheduler no longer knows are absent. When it did not answer, jobs are UNKNOWN with the
    cause as their reason."""
    trouble: str | None = None
    """Why the queue did not answer; None when it did."""


@dataclass(frozen=True)
class Found:
    """A scheduler's answer about jobs with a certain name."""

    ids: tuple[str, ...]
    certain: bool
    """Whether it answered: if so, and without an id, no such job exists."""


def refusal(answer: str) -> str:
    """Returns all that a submit command said, a site's own text included, on one line."""
    return " / ".join(line.strip() for line in answer.splitlines() if line.strip()) or "no reason given"


def unix_seconds(text: str | None) -> float | None:
    """Returns Unix seconds of a scheduler's UTC time; None for a missing or meaningless time."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None


UNSUPERVISED = "Unsupervised"
"""The reason of a job of this machine that has outlived its supervisor."""
SCHEDULER_LOG = "slurm.log"
"""The scheduler's log in a run directory."""
STEP_END = re.compile(r"srun: error: \S+: tasks? [\d,-]+: ")
"""What the launcher of a job's steps says in the log of how one ended."""


WORK = "work"
"""A run's working directory, in its run directory: its own copy of the code, and what it writes there."""
WORK_LIST = "work.list"
"""File in a run directory with a line for each file of the code in `WORK`, as `results/listing.py` lists it.
With `.gone` behind the name: that an attempt may have to copy the code again."""


GROUP_LOG = r"slurm-\d+(-\d+)?\.log"
"""Pattern of logs in a group's folder, which the runs' logs link to."""


def group_log(part: int, task: int | str | None) -> str:
    """Returns the name of a task's log in the group's folder.

    Args:
        part: number of the submission.
        task: index in the job array, or the scheduler's placeholder for it; None for a single job.
    """
    return f"slurm-{part}.log" if task is None else f"slurm-{part}-{task}.log"


AT_ONCE = 60.0
"""A start within so many seconds is "now"."""


@dataclass(frozen=True)
class PredictedStart:
    """The predicted start of one job."""

    wait: float | None
    """Seconds from now; None without a prediction."""
    moment: float | None = None
    """Unix seconds of the cluster's clock."""
    partition: str | None = None
    waiting: int = 0
    """Pending jobs in the partition; with any, the start is a bound, because of backfill."""
    words: str = ""
    """Why there is no prediction."""

    @property
    def at_once(self) -> bool:
        """Whether it starts at once."""
        return self.wait is not None and self.wait <= AT_ONCE


@dataclass(frozen=True)
class FairShare:
    """The user's fair share of one account."""

    account: str
    factor: float | None
    """0..1; jobs start sooner with a higher one."""
    used: float | None
    """Share of the cluster's recent use, 0..1."""


@dataclass(frozen=True)
class Predictions:
    """A scheduler's predictions for several jobs."""

    starts: Mapping[str, PredictedStart] = field(default_factory=dict)
    """By label; jobs without an answer are missing."""
    shares: tuple[FairShare, ...] = ()
    billing: Mapping[str, float] = field(default_factory=dict)
    """Billing units an hour by label; missing if the partition has no weights."""


Way = Literal["requeue", "array", "chain"]
"""How a run continues past its time limit (docs/until-done.md): the same job again, the next task of a job
array whose tasks run one after the other, or a successor job that each job submits."""

Kind = Literal["ok", "any", "corr"]


@dataclass(frozen=True)
class Parent:
    """A job that must end before another starts."""

    job_id: str
    run_dir: str
    kind: Kind = "ok"
    """`ok`: it must complete, or the other never starts; `any`: it may end in any way; `corr`: for two job
    arrays, each task starts after the task of the same number has completed."""
    task: int | None = None
    """The only waiting task; for backends without job arrays."""


@dataclass(frozen=True)
class EarlySignal:
    """A signal sent to a job before its time limit."""

    name: str
    """The signal's name without SIG."""
    seconds: int
    """Seconds before the limit."""


@dataclass(frozen=True)
class Limits:
    """A site's limits; the defaults are for backends without limits."""

    requeue: bool | None = True
    """Whether jobs are requeued by default; None if the site does not say."""
    array_size: int | None = None
    """Most tasks of a job array; below 2 there are no arrays, None means no limit."""
    jobs: int | None = None
    """Most jobs that the user may have in the queue, tasks of arrays counted; None if unknown."""
    queued: int = 0
    """Jobs of the user that are in the queue now, counted likewise."""
    preempt_cancels: bool = False
    """Whether a preempted job is cancelled instead of requeued."""
    max_time: int | None = None
    """Longest time of a job in the partition, seconds; None without a limit."""
    partition: str | None = None
    """The partition of these limits; the default one if the job names none."""

    @property
    def room(self) -> int | None:
        """How many more jobs the queue takes now; None if unknown."""
        return None if self.jobs is None else max(0, self.jobs - self.queued)


@dataclass(frozen=True)
class JobResources:
    """The resources that a job's options request; None if unspecified."""

    cpus: int | None = None
    memory: int | None = None
    """Bytes."""
    seconds: int | None = None
    """The time limit."""
    queues: tuple[str, ...] = ()
    """The queues that it names, of which one takes it."""


@dataclass(frozen=True)
class Continuation:
    """How a run continues past its time limit, and why in this way."""

    way: Way
    why: str
    options: tuple[str, ...] = ()
    """Additional job options that this way needs."""
