"""The scheduler interface that `slurm` and `local` fill.

Implementations are pure: they build argv and shell fragments and parse what came back; the verbs
run them over a transport.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from clusterkit.hardware import Hardware


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


Kind = Literal["ok", "any", "corr"]


@dataclass(frozen=True)
class Parent:
    """A job that must end before another one starts."""

    job_id: str
    run_dir: str
    kind: Kind = "ok"
    """`ok`: it must have completed, else the other one never starts; `any`: however it ends; `corr`: of two
    job arrays, each task after the task of the same number has completed."""
    task: int | None = None
    """Of the array that waits, the only task that does; for schedulers that start each task by itself."""


class Scheduler(Protocol):
    """Pure builders and parsers of one scheduler."""

    name: str

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv that submits the job script (an absolute path) and prints the job id.

        Args:
            script: absolute path of job.sh.
            run_dir: absolute path of the run directory.
            job_name: name the scheduler shows.
            options: sbatch options; those in the script need not be repeated, but may be (Slurm), and local
                reads `--time` and `--signal` of them and ignores the others.
        """
        ...

    def parse_submit(self, stdout: str) -> str:
        """The job id in the submit command's output. Raises SchedulerError when there is none."""
        ...

    def find_script(self, job_name: str, script: str, since: str) -> str:
        """A POSIX sh fragment that looks for jobs by their name; it never fails.

        Args:
            job_name: as it was submitted.
            script: absolute path of job.sh, by which `local` knows a job.
            since: UTC day, `YYYY-MM-DD`; no such job is older.
        """
        ...

    def parse_find(self, stdout: str, job_name: str) -> tuple[tuple[str, ...], bool]:
        """Ids of the jobs of that name, and whether the scheduler could be asked."""
        ...

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv that cancels jobs; unknown or finished ids are not an error."""
        ...

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Options that let a job start only after others. A job that never can is cancelled."""
        ...

    def query_script(self, job_ids: Sequence[str]) -> str:
        """A POSIX sh fragment that prints everything `parse_query` needs, and never fails."""
        ...

    def parse_query(self, stdout: str) -> Mapping[str, Job]:
        """Jobs by id, out of the query's output with anything before and after it.

        Holds the jobs asked about, and other ones of the user that wait or run. An id the scheduler no longer
        knows is absent; when the scheduler could not be asked its jobs are UNKNOWN, with the cause as
        their reason. Raises SchedulerError when the query's output is not there.
        """
        ...

    def machine_script(self, scratch: str) -> str:
        """A POSIX sh fragment that asks the machine on which jobs start at once what it has.

        Args:
            scratch: the scratch root as one shell word.

        Returns:
            "" where there is a queue, whose scheduler judges a request itself.
        """
        ...

    def parse_machine(self, stdout: str) -> Hardware:
        """What that machine has, out of the fragment's output."""
        ...

    def parse_trouble(self, stdout: str) -> str | None:
        """Why the queue could not be asked, out of the same output; None when it could."""
        ...


def unix_seconds(text: str | None) -> float | None:
    """Unix seconds of a UTC time of the scheduler; None for none, or one without meaning."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None


_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})(?:\.\d+)?")


def parse_time(text: str) -> int | None:
    """Seconds in a Slurm time: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S` (man sbatch, --time).

    Returns:
        None for a time without end or without meaning (UNLIMITED, NOT_SET, Partition_Limit, N/A, ...).
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:  # a single number is minutes
        parts.append(0)
    hours, minutes, seconds = [0, *parts][-3:]
    return (hours * 60 + minutes) * 60 + seconds
