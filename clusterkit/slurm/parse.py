"""Reads what sbatch, squeue and sacct say, of Slurm 20.11 and later. Pure: free of I/O.

squeue knows the present but forgets a job some minutes after its end (MinJobAge); sacct knows the past but
lags, and some sites have none. So squeue is asked first and sacct fills in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from clusterkit.errors import SchedulerError
from clusterkit.scheduler import Job, JobState
from clusterkit.slurm.explain import explain, sbatch_error
from clusterkit.slurm.rows import FIELD_SEPARATOR, ROW_ID, accounting_rows, grouped, job_state, queue_rows

__all__ = ["explain", "job_state", "parse_query", "parse_submit", "parse_trouble", "sbatch_error"]

MARK = "\x1eclusterkit-slurm"
"""Begins our own lines in the query's output; no banner of a login shell holds it."""
JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?(;[A-Za-z0-9_.-]+)?")
_REPRESENTATIVE = (  # of an array: what still happens first, then what went wrong
    JobState.RUNNING,
    JobState.COMPLETING,
    JobState.SUSPENDED,
    JobState.PENDING,
    JobState.REQUEUED,
    JobState.UNKNOWN,
    JobState.NODE_FAIL,
    JobState.OUT_OF_MEMORY,
    JobState.TIMEOUT,
    JobState.FAILED,
    JobState.PREEMPTED,
    JobState.CANCELLED,
    JobState.COMPLETED,
)


def parse_submit(stdout: str) -> str:
    """The id in the output of `sbatch --parsable`: `123`, or `123;cluster` where sbatch names a cluster.

    Raises:
        SchedulerError: no line is a job id. Banners before it do not matter.
    """
    for line in reversed(stdout.split("\n")):
        if JOB_ID.fullmatch(line.strip()):
            return line.strip()
    raise SchedulerError(
        f"sbatch printed no job id: {stdout.strip()[-200:]!r}",
        hint="the job may run all the same: look with squeue on the cluster before you submit again",
    )


def parse_query(stdout: str) -> dict[str, Job]:
    """Jobs by the ids that were asked for, their array tasks', and those of all others that squeue lists.

    A job absent from the answer is one that Slurm has forgotten, or, without accounting, ended minutes
    ago: its exit record decides. When squeue could not be asked and sacct does not know the end either, the
    job is UNKNOWN and its reason says why.

    Raises:
        SchedulerError: the output of `query_script` is not there, or cut short.
    """
    ids, sections = _sections(stdout)
    named = (name.partition(" ")[2] for name in sections)
    told = [
        f"{number};{cluster}" if cluster else number
        for cluster in dict.fromkeys(named)
        for tool in ("squeue", "sacct")
        for number in sections.get(f"{tool} {cluster}".strip(), _Section()).jobs
    ]
    answers: dict[str, Job] = {}
    for identifier in dict.fromkeys([*told, *ids]):
        number, _, cluster = identifier.partition(";")
        tag = f" {cluster}" if cluster else ""
        queue = sections.get(f"squeue{tag}", _Section(status=1, error="squeue was not asked"))
        accounting = sections.get(f"sacct{tag}", _Section(status=1, error="sacct was not asked"))
        job = _merge(number, queue, accounting)
        if job is not None:
            answers[identifier] = replace(job, job_id=identifier)
    return answers


def parse_trouble(stdout: str) -> str | None:
    """Why squeue gave no answer; None when it did.

    Raises:
        SchedulerError: as `parse_query`.
    """
    _, sections = _sections(stdout)
    failed = (part for name, part in sections.items() if name.startswith("squeue") and part.status != 0)
    return next(map(_cause, failed), None)


def parse_find(stdout: str, job_name: str) -> tuple[tuple[str, ...], bool]:
    """Ids in the output of `find_script`, without array tasks, and whether squeue could be asked.

    A job that squeue has forgotten, without accounting, has made its attempt folder: that tells then.
    """
    ids: dict[str, None] = {}
    answers: dict[str, bool] = {}
    for chunk in stdout.replace("\r\n", "\n").split(MARK + " ")[1:]:
        head, _, body = chunk.partition("\n")
        kind, _, rest = head.partition(" ")
        if kind == "begin" and rest in (f"queued {job_name}", f"booked {job_name}"):
            current = rest.partition(" ")[0]
            matches = (ROW_ID.fullmatch(line.strip()) for line in body.splitlines())
            ids |= {match["base"]: None for match in matches if match}
        elif kind == "status" and rest.isdigit():
            answers[current] = int(rest) == 0
    return tuple(ids), answers.get("queued", False)


@dataclass
class _Section:
    """What one command said."""

    status: int = -1
    error: str = ""
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    """By the id of the job, of the array task and, for tasks, also of the whole array."""


def _merge(number: str, queue: _Section, accounting: _Section) -> Job | None:
    queued = _one(queue.jobs.get(number, []))
    booked = _one(accounting.jobs.get(number, []))
    if queued is not None:
        # At the end sacct has the exit code, but may lag and still say RUNNING.
        if booked is not None and not queued.state.active and not booked.state.active:
            return replace(booked, reason=queued.reason)
        return replace(queued, restarts=booked.restarts) if booked is not None else queued
    if queue.status == 0:
        if booked is not None and booked.state.active:
            return replace(
                booked, state=JobState.UNKNOWN, reason="gone from the queue; accounting lags behind"
            )
        return booked
    trouble = f"squeue failed: {_cause(queue)}"
    if booked is None:
        return Job(number, JobState.UNKNOWN, "", reason=trouble, confirmed=False)
    if booked.state.active:
        booked = replace(booked, reason=f"according to sacct; {trouble}")
    return replace(booked, confirmed=False)


def _one(jobs: list[Job]) -> Job | None:
    """A job, or for an array the task that says most about it."""
    return min(jobs, key=lambda job: _REPRESENTATIVE.index(job.state), default=None)


def _cause(section: _Section) -> str:
    """The most telling line of standard error."""
    if section.status == 124:
        return "no answer in time"
    lines = [line.strip() for line in section.error.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {section.status}"


def _sections(stdout: str) -> tuple[list[str], dict[str, _Section]]:
    """Split the output at our marks; whatever stands before the first one is a banner."""
    chunks = stdout.replace("\r\n", "\n").split(MARK + " ")[1:]
    heads = [chunk.partition("\n")[0] for chunk in chunks]
    if not heads or not heads[0].startswith("ids") or heads[-1] != "end":
        raise SchedulerError(
            f"the query of the scheduler was cut short: {stdout.strip()[-200:]!r}", hint="try again"
        )
    sections: dict[str, _Section] = {}
    current = _Section()
    for chunk in chunks[1:-1]:
        head, _, body = chunk.partition("\n")
        kind, _, rest = head.partition(" ")
        if kind == "begin":
            rows = (line.split(FIELD_SEPARATOR) for line in body.split("\n") if FIELD_SEPARATOR in line)
            current = sections.setdefault(rest, _Section())
            read = queue_rows if rest.startswith("squeue") else accounting_rows
            current.jobs = grouped(read(rows))
        else:
            current.status, current.error = int(rest), body.strip()
    return heads[0].split()[1:], sections
