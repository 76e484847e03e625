"""Parses rows of squeue and sacct: states, times, ids of array tasks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from clusterkit.backends.jobs import Job, JobState
from clusterkit.untrusted import ordinal

FIELD_SEPARATOR = "\x1f"
SQUEUE_FIELDS = ("%i", "%F", "%T", "%r", "%P", "%N", "%M", "%l", "%S", "%e", "%j")
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
    "JobName",
)

ROW_ID = re.compile(
    r"(?P<base>[0-9]{1,18})(?:_(?P<task>[0-9]{1,18}|\[[^]]*\]))?(?:\+\d+)?(?:\.(?P<step>.+))?"
)
_TIME = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<clock>[0-9]{1,12}(?::[0-9]{1,12}){0,2})(?:\.[0-9]+)?")
_EMPTY = frozenset({None, "", "None", "N/A", "n/a", "Unknown", "(null)", "None assigned"})

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
    "REVOKED": JobState.UNKNOWN,  # it goes on in another cluster of the federation
    "SIGNALING": JobState.RUNNING,
    "SPECIAL_EXIT": JobState.PENDING,
    "STAGE_OUT": JobState.COMPLETING,
    "STOPPED": JobState.SUSPENDED,
    "UPDATE_DB": JobState.COMPLETING,
}
_OURS = frozenset({JobState.UNKNOWN, JobState.SUBMITTING, JobState.DEFERRED, JobState.NOT_SUBMITTED})
_STATES = {state.value: state for state in JobState if state not in _OURS} | _ALIASES


def job_state(text: str) -> JobState:
    """Returns the state in a text such as `CANCELLED by 1000` or `OUT_OF_ME+`; UNKNOWN for another one."""
    word = (text.split() or [""])[0]
    if word in _STATES:
        return _STATES[word]
    if word.endswith("+") and len(word) > 3:  # cut to the width of a column
        matches = {state for name, state in _STATES.items() if name.startswith(word[:-1])}
        if len(matches) == 1:
            return matches.pop()
    return JobState.UNKNOWN


def grouped(jobs: Iterator[Job]) -> dict[str, list[Job]]:
    """Returns jobs by id, array tasks also by array id.

    A later row with the same id is a later start of the requeued job.
    """
    newest: dict[str, Job] = {}
    for job in jobs:
        before = newest.get(job.job_id)
        if before is not None and "REVOKED" in (job.raw_state, before.raw_state):
            newest[job.job_id] = before if job.raw_state == "REVOKED" else job
            continue
        newest[job.job_id] = replace(job, restarts=before.restarts + 1) if before is not None else job
    groups: dict[str, list[Job]] = {}
    for identifier, job in newest.items():
        groups.setdefault(identifier, []).append(job)
        base, underscore, _ = identifier.partition("_")
        if underscore:
            groups.setdefault(base, []).append(job)
    return groups


def queue_rows(rows: Iterator[list[str]]) -> Iterator[Job]:
    """Yields jobs in squeue's output; malformed rows are ignored."""
    for row in rows:
        if len(row) != len(SQUEUE_FIELDS) or not (match := ROW_ID.fullmatch(row[0].strip())):
            continue
        _, _, state, reason, partition, node, elapsed, limit, start, end, name = map(str.strip, row)
        revoked = state == "REVOKED"
        yield Job(
            _identifier(match),
            job_state(state),
            state,
            reason=state if revoked else known(reason),
            confirmed=not revoked,
            partition=known(partition),
            node=known(node),
            start=known(start),
            end=known(end),
            elapsed_seconds=parse_time(elapsed),
            limit_seconds=parse_time(limit),
            name=known(name),
        )


def accounting_rows(rows: Iterator[list[str]]) -> Iterator[Job]:
    """Yields jobs in sacct's output, merged with their steps; malformed rows are ignored."""
    job: Job | None = None
    for row in rows:
        if len(row) != len(SACCT_FIELDS) or not (match := ROW_ID.fullmatch(row[0].strip())):
            continue
        _, state, code, start, end, elapsed, limit, partition, node, name = map(str.strip, row)
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
            partition=known(partition),
            node=known(node),
            start=known(start),
            end=known(end),
            elapsed_seconds=ordinal(elapsed),
            limit_seconds=minutes * 60 if (minutes := ordinal(limit)) is not None else None,
            exit_code=known(code),
            name=known(name),
        )
    if job is not None:
        yield job


def _identifier(match: re.Match[str]) -> str:
    """Returns `123` or `123_4`; `123_[0-9]`, an array's pending rest, counts as the array."""
    task = match["task"]
    return f"{match['base']}_{task}" if task and task.isdigit() else match["base"]


def known(value: str | None) -> str | None:
    """Returns a field's value; None for Slurm's words for nothing."""
    return None if value in _EMPTY else value


def parse_time(text: str) -> int | None:
    """Returns seconds in a Slurm time: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S` (man sbatch, --time).

    Returns:
        None for an unlimited or meaningless time (UNLIMITED, NOT_SET, Partition_Limit, N/A, ...).
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
