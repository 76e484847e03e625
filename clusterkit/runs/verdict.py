"""Combines the scheduler's state and the run directory into the state of a run. Pure.

The first matching rule decides:

| scheduler | run directory | state |
|---|---|---|
| anything | packed run, exit record of this job: completed, failed, container | by the exit record |
| still active, OUT_OF_MEMORY | packed run, exit record of this job: signalled | by the exit record |
| OUT_OF_MEMORY | anything | OUT_OF_MEMORY, whatever the exit code |
| anything | exit record of this job: completed | COMPLETED, even while the scheduler lags |
| PENDING, REQUEUED | packed run, cancel requested | CANCELLED: it will not start with the others |
| PENDING, REQUEUED | | the scheduler's |
| RUNNING, SUSPENDED, COMPLETING | exit record of this job: failed, container | by the exit record |
| RUNNING, SUSPENDED, COMPLETING | any exit record of this job, cancel requested | CANCELLED |
| RUNNING, SUSPENDED, COMPLETING | signal or timeout, 2 minutes ago | by the exit record: others use the job |
| RUNNING, SUSPENDED, COMPLETING | otherwise | the scheduler's |
| unknown job, or any ended state | stopped.json, not cancelled | FAILED: it made no progress |
| TIMEOUT, CANCELLED, NODE_FAIL, PREEMPTED | | the scheduler's |
| unknown job, or anything else | cancel requested, exit record not completed or none | CANCELLED |
| unknown job, or anything else | exit record | by the exit record |
| COMPLETED, FAILED | no exit record | the scheduler's |
| no answer | started, heartbeat younger than 3 minutes | RUNNING |
| UNKNOWN, no answer | no exit record | UNKNOWN |
| unknown job | started, no exit record | FAILED: the node failed or everything was killed at once |
| unknown job | never started | FAILED: it left the queue without starting |

By the exit record: completed -> COMPLETED, requeue -> PREEMPTED (checkpointed, to be continued), timeout ->
TIMEOUT, failed, signalled and container -> FAILED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.backends.jobs import ENDS, SCHEDULER_LOG, Job, JobState, unix_seconds
from clusterkit.runs.record import Attempt, RunRecord
from clusterkit.units import CLOCKS_DIFFER
from clusterkit.untrusted import number as finite
from clusterkit.untrusted import one_line

STALE_SECONDS = 180.0
"""Seconds of silence after which a program that writes heartbeats may be hanging."""
SETTLED_SECONDS = 120.0
"""Maximum delay in seconds of an exit record on a shared file system after the scheduler reports the end."""

_SCHEDULER_KNOWS_BEST = frozenset(
    {JobState.TIMEOUT, JobState.CANCELLED, JobState.NODE_FAIL, JobState.PREEMPTED}
)
_ENDING = frozenset({"USR1", "USR2", "TERM", "INT"})
"""Signals that the scheduler sends to end a job."""
_IN_VAIN = "a run that it depends on did not complete, so it never started"
_CHECKPOINTED = "it checkpointed and can be resumed"


@dataclass(frozen=True)
class StateVerdict:
    """A run's state, and whether it is final."""

    state: JobState
    why: str | None
    """One line in plain words: why it waits or ended."""
    final: bool
    """Whether it has ended and no delayed record can change that."""


def verdict(record: RunRecord, job: Job | None) -> StateVerdict:
    """Determines the state of a run by the table above.

    Args:
        record: the files of the run directory.
        job: the scheduler's record of the newest job; None if the scheduler does not know it (any more).
    """
    newest = record.started
    ended = newest.exit if newest is not None and same_job(newest, job) else None
    state, why = _state(record, job, newest, ended)
    return StateVerdict(state, why, _final(state, record, job, ended))


def same_job(attempt: Attempt, job: Job | None) -> bool:
    """Returns whether an attempt belongs to this job; always True if the scheduler does not know the job."""
    recorded = str((attempt.start or {}).get("job_id") or "")
    if job is None or not recorded:
        return True
    number = job.job_id.partition(";")[0]
    return recorded == number or recorded.startswith(f"{number}_")


def silence(record: RunRecord) -> float | None:
    """Returns the seconds since the newest sign of life of a program that writes heartbeats.

    The newer of the time inside the heartbeat and that of its file counts, because the clocks of the node,
    the login node and the file server may differ. Times in the future are ignored.
    """
    beat = number(record.heartbeat or {}, "time")
    if beat is None or record.now is None:
        return None
    newest = record.started
    # Until this attempt writes its own heartbeat, an earlier attempt's does not mean that it is silent.
    told = max(beat, number((newest.start if newest else None) or {}, "started") or 0.0)
    ages = [record.now - moment for moment in (told, record.alive) if moment is not None]
    return min((age for age in ages if age > -CLOCKS_DIFFER), default=0.0)


def may_go_on(record: RunRecord, ended: Mapping[str, Any]) -> bool:
    """Returns whether a scheduler that cannot be asked may start a run again after this exit record.

    It does so after it has interrupted a job itself, and a run that goes on past its time limit asks for it.
    """
    if _stopped(record, record.started):
        return False
    match ended.get("why"):
        case "timeout":
            return record.request.until_done is not None
        case "signalled":
            return ended.get("signal") in _ENDING
        case why:
            return why == "requeue"


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Returns a finite number in a record; None for any other value."""
    return finite(record.get(key))


def _state(
    record: RunRecord, job: Job | None, newest: Attempt | None, ended: Mapping[str, Any] | None
) -> tuple[JobState, str | None]:
    if ended is not None and record.packed and _ended_alone(ended, job, cancelled=record.cancelled):
        return _by_exit(ended, cancelled=record.cancelled)
    if job is not None and job.state is JobState.OUT_OF_MEMORY:
        said = one_line((ended or {}).get("detail") or "")
        return job.state, _joined(ENDS[JobState.OUT_OF_MEMORY], said)
    if ended is not None and ended.get("why") == "completed":
        return JobState.COMPLETED, None
    if job is not None and job.state.waiting:
        if record.packed and record.cancelled:
            return JobState.CANCELLED, "it was cancelled; the job it shared is pending for other runs"
        return job.state, _words(job)
    if job is not None and job.state.active:
        if ended is not None and _over(ended, record):
            return _by_exit(ended, cancelled=record.cancelled)
        return job.state, "it is being cancelled" if record.cancelled else _words(job)
    if _stopped(record, newest):
        return JobState.FAILED, one_line((record.stopped or {}).get("why") or "it made no progress")
    if job is not None and job.state in _SCHEDULER_KNOWS_BEST:
        checkpointed = ended is not None and ended.get("why") == "requeue"
        in_vain = job.state is JobState.CANCELLED and job.in_vain
        words = _IN_VAIN if in_vain else ENDS.get(job.state)
        return job.state, _joined(words, _CHECKPOINTED if checkpointed else None)
    if ended is not None:
        return _by_exit(ended, cancelled=record.cancelled)
    if record.cancelled:
        return JobState.CANCELLED, record.cancel_detail or ENDS[JobState.CANCELLED]
    if job is not None:
        return _without_exit(record, job, newest)
    if not record.exists:
        return JobState.UNKNOWN, "its run directory is gone and the scheduler does not know it"
    if newest is not None:
        return (
            JobState.FAILED,
            "it ended without an exit record: its node failed, or the whole job was killed at once",
        )
    return JobState.FAILED, f"it left the queue without starting; {SCHEDULER_LOG} may say why"


def _ended_alone(ended: Mapping[str, Any], job: Job | None, *, cancelled: bool) -> bool:
    """Returns whether a packed run has ended by itself, whatever happens to its shared job."""
    if ended.get("why") != "signalled":
        return ended.get("why") in ("completed", "failed", "container")
    if job is None or cancelled or ended.get("signal") not in _ENDING:
        return job is not None and (job.state.active or job.state is JobState.OUT_OF_MEMORY)
    # The signal may have been sent to the whole job, which may start the run again.
    return job.state in (JobState.RUNNING, JobState.OUT_OF_MEMORY)


def _stopped(record: RunRecord, newest: Attempt | None) -> bool:
    """Returns whether the run was stopped after its newest attempt for lack of progress."""
    if record.stopped is None or record.cancelled:
        return False
    moment = number(record.stopped, "time")
    started = number((newest.start if newest else None) or {}, "started")
    return moment is None or started is None or moment >= started


def _over(ended: Mapping[str, Any], record: RunRecord) -> bool:
    """Returns whether an exit record counts although the job is active."""
    if ended.get("why") in ("failed", "container") or record.cancelled:
        return True
    # The scheduler soon reports who sent a signal and why; if it does not, the job is still running others.
    moment = number(ended, "ended")
    late = moment is not None and record.now is not None and record.now - moment > SETTLED_SECONDS
    return late and ended.get("why") in ("signalled", "timeout")


def _without_exit(record: RunRecord, job: Job, newest: Attempt | None) -> tuple[JobState, str | None]:
    """Returns the state without an exit record, for a job that is COMPLETED, FAILED or UNKNOWN."""
    if job.state is JobState.COMPLETED:
        return job.state, "according to the scheduler; there is no exit record"
    words = _words(job) or f"the scheduler says {job.raw_state or 'nothing'}"
    if not job.confirmed and job.state is JobState.UNKNOWN and newest is not None and same_job(newest, job):
        silent = silence(record)
        if silent is not None and silent <= STALE_SECONDS:
            return JobState.RUNNING, f"according to its heartbeat; {words}"
    return job.state, words


def _final(state: JobState, record: RunRecord, job: Job | None, ended: Mapping[str, Any] | None) -> bool:
    if state.active or state is JobState.UNKNOWN:
        return False
    if ended is not None and ended.get("why") == "completed":
        return True
    if job is None:
        return True
    if job.state.active or not job.confirmed:
        return False
    end = unix_seconds(job.end)
    return ended is not None or end is None or record.now is None or record.now - end > SETTLED_SECONDS


def _by_exit(record: Mapping[str, Any], *, cancelled: bool) -> tuple[JobState, str | None]:
    why, code, signal = record.get("why"), record.get("code"), record.get("signal")
    if why == "completed":
        return JobState.COMPLETED, None
    if cancelled:
        return JobState.CANCELLED, _joined("it was cancelled", _CHECKPOINTED if why == "requeue" else None)
    if why == "requeue":
        return JobState.PREEMPTED, _joined(
            f"SIG{one_line(signal)} stopped it early" if signal else "it stopped early", _CHECKPOINTED
        )
    if why == "timeout":
        return JobState.TIMEOUT, ENDS[JobState.TIMEOUT]
    if why == "container":
        return JobState.FAILED, one_line(
            record.get("detail") or "the container did not start; its log says why"
        )
    if why == "signalled" and signal == "KILL":
        return JobState.FAILED, "SIGKILL ended the program: often because memory ran out"
    if why == "signalled":
        return JobState.FAILED, one_line(f"SIG{signal} ended the program")
    return JobState.FAILED, one_line(record.get("detail") or f"the program ended with exit code {code}")


def _words(job: Job) -> str | None:
    """Returns the reason in plain words, or else as the scheduler reports it."""
    return job.explained or job.reason


def _joined(first: str | None, second: str | None) -> str | None:
    return "; ".join(part for part in (first, second) if part) or None
