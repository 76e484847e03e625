"""Reads what sbatch, squeue and sacct say, of Slurm 20.11 and later. Pure: free of I/O.

squeue knows the present but forgets a job some minutes after its end (MinJobAge); sacct knows the past but
lags, and some sites have none. So squeue is asked first and sacct fills in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from clusterkit.errors import SchedulerError
from clusterkit.scheduler import Job, JobState, parse_time
from clusterkit.slurm.explain import explain, sbatch_error

__all__ = ["explain", "job_state", "parse_query", "parse_submit", "sbatch_error"]

MARK = "\x1eclusterkit-slurm"
"""Begins our own lines in the query's output; no banner of a login shell holds it."""
FIELD_SEPARATOR = "\x1f"
JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?(;[A-Za-z0-9_.-]+)?")
SQUEUE_FIELDS = ("%i", "%F", "%T", "%r", "%P", "%N", "%M", "%l", "%S", "%e")
SACCT_FIELDS = (
    "JobID",
    "State",
    "ExitCode",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "Partition",
    "NodeList",
)

_ROW_ID = re.compile(r"(?P<base>\d+)(?:_(?P<task>\d+|\[[^]]*\]))?(?:\+\d+)?(?:\.(?P<step>.+))?")
_EMPTY = frozenset({"", "None", "N/A", "Unknown", "(null)", "None assigned"})

# States with no word of their own here, and the flags that newer squeues show in place of the base state
# (https://slurm.schedmd.com/job_state_codes.html).
_ALIASES = {
    "BOOT_FAIL": JobState.NODE_FAIL,
    "CONFIGURING": JobState.PENDING,
    "DEADLINE": JobState.TIMEOUT,
    "LAUNCH_FAILED": JobState.FAILED,
    "POWER_UP_NODE": JobState.PENDING,
    "RECONFIG_FAIL": JobState.NODE_FAIL,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESIZING": JobState.RUNNING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "REVOKED": JobState.CANCELLED,
    "SIGNALING": JobState.RUNNING,
    "SPECIAL_EXIT": JobState.PENDING,
    "STAGE_OUT": JobState.COMPLETING,
    "STOPPED": JobState.SUSPENDED,
    "UPDATE_DB": JobState.COMPLETING,
}
_STATES = {state.value: state for state in JobState if state is not JobState.UNKNOWN} | _ALIASES

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


def job_state(text: str) -> JobState:
    """The state in Slurm's text, e.g. `CANCELLED by 1000` or `OUT_OF_ME+`; UNKNOWN for one we do not know."""
    word = (text.split() or [""])[0]
    if word in _STATES:
        return _STATES[word]
    if word.endswith("+") and len(word) > 3:  # cut to the width of a column
        matches = {state for name, state in _STATES.items() if name.startswith(word[:-1])}
        if len(matches) == 1:
            return matches.pop()
    return JobState.UNKNOWN


def parse_query(stdout: str) -> dict[str, Job]:
    """Jobs by the ids that were asked for.

    A job absent from the answer is one that Slurm has forgotten, or, without accounting, ended minutes
    ago: its exit record decides. When squeue could not be asked and sacct does not know the end either, the
    job is UNKNOWN and its reason says why.

    Raises:
        SchedulerError: the output of `query_script` is not there, or cut short.
    """
    ids, sections = _sections(stdout)
    answers: dict[str, Job] = {}
    for identifier in ids:
        number, _, cluster = identifier.partition(";")
        tag = f" {cluster}" if cluster else ""
        queue = sections.get(f"squeue{tag}", _Section(status=1, error="squeue was not asked"))
        accounting = sections.get(f"sacct{tag}", _Section(status=1, error="sacct was not asked"))
        job = _merge(number, queue, accounting)
        if job is not None:
            answers[identifier] = replace(job, job_id=identifier)
    return answers


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
            matches = (_ROW_ID.fullmatch(line.strip()) for line in body.splitlines())
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
        return Job(number, JobState.UNKNOWN, "", reason=trouble)
    return replace(booked, reason=f"according to sacct; {trouble}") if booked.state.active else booked


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
            current.jobs = _group(_queue_rows(rows) if rest.startswith("squeue") else _accounting_rows(rows))
        else:
            current.status, current.error = int(rest), body.strip()
    return heads[0].split()[1:], sections


def _group(jobs: Iterator[Job]) -> dict[str, list[Job]]:
    """Jobs by id. A later row of the same id is a later start of the same, requeued, job."""
    newest: dict[str, Job] = {}
    for job in jobs:
        before = newest.get(job.job_id)
        newest[job.job_id] = replace(job, restarts=before.restarts + 1) if before is not None else job
    groups: dict[str, list[Job]] = {}
    for identifier, job in newest.items():
        groups.setdefault(identifier, []).append(job)
        base, underscore, _ = identifier.partition("_")
        if underscore:
            groups.setdefault(base, []).append(job)
    return groups


def _queue_rows(rows: Iterator[list[str]]) -> Iterator[Job]:
    for row in rows:
        if len(row) != len(SQUEUE_FIELDS) or not (match := _ROW_ID.fullmatch(row[0].strip())):
            continue
        _, _, state, reason, partition, node, elapsed, limit, start, end = (text.strip() for text in row)
        yield Job(
            _identifier(match),
            job_state(state),
            state,
            reason=_text(reason),
            partition=_text(partition),
            node=_text(node),
            start=_text(start),
            end=_text(end),
            elapsed_seconds=parse_time(elapsed),
            limit_seconds=parse_time(limit),
        )


def _accounting_rows(rows: Iterator[list[str]]) -> Iterator[Job]:
    job: Job | None = None
    for row in rows:
        if len(row) != len(SACCT_FIELDS) or not (match := _ROW_ID.fullmatch(row[0].strip())):
            continue
        _, state, code, start, end, elapsed, limit, partition, node = (text.strip() for text in row)
        if match["step"]:
            # Some versions book the memory kill on the step only and call the job FAILED.
            oom = job_state(state) is JobState.OUT_OF_MEMORY
            if oom and job is not None and job.state is JobState.FAILED and job.job_id == _identifier(match):
                job = replace(job, state=JobState.OUT_OF_MEMORY)
            continue
        if job is not None:
            yield job
        job = Job(
            _identifier(match),
            job_state(state),
            state,
            partition=_text(partition),
            node=_text(node),
            start=_text(start),
            end=_text(end),
            elapsed_seconds=int(elapsed) if elapsed.isdigit() else None,
            limit_seconds=int(limit) * 60 if limit.isdigit() else None,
            exit_code=_text(code),
        )
    if job is not None:
        yield job


def _identifier(match: re.Match[str]) -> str:
    """`123`, `123_4`; `123_[0-9]`, the pending rest of an array, counts as the array itself."""
    task = match["task"]
    return f"{match['base']}_{task}" if task and task.isdigit() else match["base"]


def _text(value: str) -> str | None:
    return None if value in _EMPTY else value
