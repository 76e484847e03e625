"""A scheduler's story of one job, for `clusterkit why`. Pure.

The rules of `clusterkit.diagnosis` read a `JobStory` and never the scheduler's own text. A scheduler that
knows only the states of its jobs uses `plain_story`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clusterkit.backends.causes import Finding, Line, Text
from clusterkit.backends.jobs import Job, JobState, QueryResult
from clusterkit.errors import SchedulerError
from clusterkit.probes import TIME_UP, Probe, sections

SECONDS = 10
"""Time limit of each command; a site where all of them hang must still answer within the question's limit."""


@dataclass(frozen=True)
class Subject:
    """The run in question."""

    run_id: str
    job_id: str
    """Empty if there never was one."""
    run_dir: str
    """Absolute path on the cluster."""
    scheduler: str
    """The kind of its cluster."""
    shell: str = ""
    """The prefix of a command to run on the cluster, e.g. `ssh login`; empty for this machine."""
    profile: str = ""
    cluster: str = ""
    """Its name in the settings."""
    recipe: str = ""
    """Of the bundled trainer; empty for a program of one's own."""
    started: str = ""
    """Job id of the newest attempt; like the next two, known once the files are read."""
    node: str = ""
    """The node of that attempt."""
    jobs: tuple[str, ...] = ()
    """Ids of all its jobs."""
    user: str = ""
    """The user's name on the cluster."""

    @property
    def cancel(self) -> str:
        """The command that ends a run that will never start."""
        return f"clusterkit cancel {self.run_id}"

    def here(self, command: str) -> str:
        """Returns a command to run on the cluster, as the user types it."""
        return f"{self.shell} {command}".strip()


class Topic(StrEnum):
    """Topics on which a scheduler may be quoted."""

    COMPLETED = "completed"
    TIME_LIMIT = "time limit"
    DEADLINE = "deadline"
    MEMORY = "memory"
    """Requested and used memory."""
    OUT_OF_MEMORY = "out of memory"
    PREEMPTED = "preempted"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    VANISHED = "vanished"
    """How a job without an exit record ended."""
    EXIT = "exit"
    """Its exit code."""
    NODE = "node"
    """The node."""
    GPU = "gpu"
    """The requested GPUs."""
    DEPENDENCY = "dependency"
    """The dependencies."""
    START = "start"
    """The expected start."""


@dataclass(frozen=True)
class JobStory:
    """A scheduler's story of one job."""

    job: Job | None = None
    """None if it does not know the job (any more)."""
    silent: str = ""
    """Why the scheduler did not answer; empty when it did."""
    reason: str = ""
    """Why it waits or ended, in the scheduler's words."""
    source: str = "scheduler"
    """Who says the state and the reason."""
    quotes: Mapping[Topic, tuple[Line, ...]] = field(default_factory=dict)
    log: Text | None = None
    """The scheduler's own log without what it says of earlier jobs of the run; None for all of it."""
    log_says: Mapping[JobState, Line] = field(default_factory=dict)
    """The last line of that log which tells of such an end."""
    findings: tuple[Finding, ...] = ()
    """Why it waits or was never started, as only this scheduler can know."""
    deadline: bool = False
    """It was ended because it could not end before its deadline."""
    node_down: bool = False
    """Its node takes no jobs now."""
    without_gpu: bool = False
    """It is known to have asked for no GPU."""
    memory: str = ""
    """How much it asked for, as the scheduler writes it."""
    cancelled_by: tuple[str, str] | None = None
    """User id and name of who cancelled it; None where nobody says."""
    cancel_tool: str = "the scheduler's own command"
    """What else its user may have cancelled it with."""
    more_memory: tuple[str, ...] = ()
    """Options, without dashes, of a job like it with more memory."""
    elsewhere: tuple[str, ...] = ()
    """Options, without dashes, of a job like it on another node."""
    ping: str = ""
    """The command on the cluster that tells whether the scheduler answers."""

    @property
    def raw_state(self) -> str:
        """The scheduler's own word for the state; empty when it gives none."""
        return self.job.raw_state if self.job else ""

    @property
    def waits(self) -> Line | None:
        """The state and the reason, as evidence; None without a reason."""
        return Line(self.source, f"{self.raw_state}, reason {self.reason}") if self.reason else None

    def quote(self, topic: Topic) -> tuple[Line, ...]:
        """Returns its lines about something; none where it says nothing."""
        return self.quotes.get(topic, ())


def plain_story(query: Probe[QueryResult], job_id: str) -> Probe[JobStory]:
    """Returns the story of a job of which a scheduler says no more than how it is.

    Args:
        query: the backend's question about this job.
        job_id: of the job; empty when there is none.
    """

    def read(answer: str) -> JobStory:
        try:
            result = query.read(answer)
        except SchedulerError as error:
            result = QueryResult({}, error.cause)
        job = result.jobs.get(job_id)
        if job is None and result.trouble and job_id:
            job = Job(job_id, JobState.UNKNOWN, "", reason=result.trouble)
        if job is None or job.state is JobState.UNKNOWN:
            return JobStory(job, result.trouble or "")
        return JobStory(job, reason=plain_reason(job.reason))

    return Probe("story", query.script, read)


def plain_reason(reason: str | None) -> str:
    """Returns a scheduler's reason with blanks for underscores, as people read it."""
    return re.sub(r"[_\s]+", " ", reason or "")


def texts(answer: str) -> Iterator[Text]:
    """Returns what each file and command said, by the sections of an answer."""
    for section in sections(answer):
        words = section.text + (f"\nno answer within {SECONDS} s" if section.status == TIME_UP else "")
        yield Text(section.name, tuple(words.rstrip("\n").split("\n")) if words.strip() else ())
