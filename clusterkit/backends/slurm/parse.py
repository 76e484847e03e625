"""Parses the output of sbatch, squeue and sacct of Slurm 20.11 and later. Pure.

squeue knows the present but forgets a job minutes after its end (MinJobAge); sacct knows the past but lags,
and some sites have none. So squeue comes first and sacct fills in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from clusterkit.backends.jobs import Found, Job, JobState, QueryResult
from clusterkit.backends.slurm.explain import explain
from clusterkit.backends.slurm.rows import (
    FIELD_SEPARATOR,
    ROW_ID,
    accounting_rows,
    grouped,
    queue_rows,
)
from clusterkit.errors import SchedulerError, last_words
from clusterkit.probes import Section, marked, sections

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


def parse_query(stdout: str) -> QueryResult:
    """Parses the jobs that were asked about, their array tasks, and all others that squeue lists, by id.

    Slurm has forgotten a job that is absent from the answer or, without accounting, it ended minutes ago: its
    exit record decides. If squeue did not answer and sacct does not know the end either, the job is UNKNOWN
    with the reason.

    Raises:
        SchedulerError: the answer is missing or was cut short.
    """
    ids, tools = _tools(stdout)
    clusters = dict.fromkeys(name.partition(" ")[2] for name in tools)
    listed = [
        f"{number};{cluster}" if cluster else number
        for cluster in clusters
        for tool in ("squeue", "sacct")
        for number in tools.get(f"{tool} {cluster}".strip(), _Tool()).jobs
    ]
    answers: dict[str, Job] = {}
    for identifier in dict.fromkeys([*listed, *ids]):
        number, _, cluster = identifier.partition(";")
        tag = f" {cluster}" if cluster else ""
        queue = tools.get(f"squeue{tag}", _Tool(status=1, error="squeue was not asked"))
        accounting = tools.get(f"sacct{tag}", _Tool(status=1, error="sacct was not asked"))
        job = _merge(number, queue, accounting)
        if job is not None:
            words = explain(job.reason) if job.reason else None
            answers[identifier] = replace(
                job,
                job_id=identifier,
                explained=words,
                depends=job.reason == "Dependency",
                in_vain=job.reason == "DependencyNeverSatisfied",
            )
    failed = (part for name, part in tools.items() if name.startswith("squeue") and part.status != 0)
    return QueryResult(answers, next((f"squeue failed: {_cause(part)}" for part in failed), None))


def parse_find(stdout: str) -> Found:
    """Parses the ids of a name's jobs, without array tasks, and whether squeue answered.

    Without accounting, a job that squeue has forgotten is known by its attempt folder.
    """
    answered = {section.name: section for section in sections(stdout)}
    lines = [
        line for name in ("queued", "booked") if name in answered for line in answered[name].text.splitlines()
    ]
    ids = {match["base"]: None for match in map(ROW_ID.fullmatch, map(str.strip, lines)) if match}
    return Found(tuple(ids), "queued" in answered and answered["queued"].status == 0)


@dataclass
class _Tool:
    """The answer of squeue or sacct for one cluster."""

    status: int = 1
    error: str = ""
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    """By job id, by array task id and, for tasks, also by array id."""


def _merge(number: str, queue: _Tool, accounting: _Tool) -> Job | None:
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
    """Returns a job, or an array's most informative task."""
    return min(jobs, key=lambda job: _REPRESENTATIVE.index(job.state), default=None)


def _cause(tool: _Tool) -> str:
    """Returns the most telling line of standard error."""
    if tool.status == 124:
        return "no answer in time"
    lines = [line.strip() for line in tool.error.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {tool.status}"


def _tools(stdout: str) -> tuple[list[str], dict[str, _Tool]]:
    """Returns the requested ids and each tool's answer; text before the first mark is a banner."""
    ids = marked(stdout, "ids")
    if ids is None or marked(stdout, "end") is None:
        raise SchedulerError(
            f"the query of the scheduler was cut short: {last_words(stdout)}", hint="try again"
        )
    answered = {section.name: section for section in sections(stdout)}
    named = {name: section for name, section in answered.items() if name.split(" ")[0] in ("squeue", "sacct")}
    return ids.split(), {name: _read(section) for name, section in named.items()}


def _read(section: Section) -> _Tool:
    lines = section.text.split("\n")
    rows = (line.split(FIELD_SEPARATOR) for line in lines if FIELD_SEPARATOR in line)
    read = queue_rows if section.name.startswith("squeue") else accounting_rows
    return _Tool(section.status, section.error, grouped(read(rows)))
