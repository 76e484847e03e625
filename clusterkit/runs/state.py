"""Computes a run's state, progress and outlook, as shown to the user. Pure.

`verdict` decides the state; this module adds the heartbeat, the time limit and the last known state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from clusterkit.backends.jobs import Job, JobState, unix_seconds
from clusterkit.runs.outlook import Pace, Sighting, at_the_limit, pace, smoothed, time_left
from clusterkit.runs.record import RunRecord
from clusterkit.runs.verdict import STALE_SECONDS, StateVerdict, number, silence, verdict
from clusterkit.units import CLOCKS_DIFFER, listed
from clusterkit.untrusted import Shape, flag, one_line, parse_object, shaped, text, texts, whole
from clusterkit.untrusted import number as finite

_FOREVER = 1e11
"""Seconds, thousands of years; longer estimates are dropped."""
_LONGEST = 20_000
"""Characters of a remembered text."""
_NAMED = 3
"""Maximum number of unreadable files named in a message; further ones are counted."""


@dataclass(frozen=True)
class RunState:
    """A run's state. docs/status.md describes each field, as `status --json` prints it."""

    state: JobState
    why: str | None = None
    """One line in plain words: why it waits, ended or may hang."""
    final: bool = False
    """Whether the run has ended and is no longer queried."""
    progress: float | None = None
    """Fraction of the steps done, 0..1."""
    eta_seconds: float | None = None
    """Seconds until the last step at the current rate; only while it runs."""
    steps_per_second: float | None = None
    success: float | None = None
    """Success rate of the last evaluation, 0..1."""
    outlook: str | None = None
    """One line about exceeding the time limit; None if the run fits."""
    expected_start: float | None = None
    """The scheduler's estimate for a pending run, Unix seconds."""
    elapsed_seconds: float | None = None
    """Seconds since the newest attempt started."""
    limit_seconds: int | None = None
    gpu: float | None = None
    """GPU utilization, 0..1; only while it runs."""
    heartbeat_age: float | None = None
    """Seconds since the program's last sign of life; only while it runs."""
    stale: bool = False
    """Whether it should be running but its heartbeat has stopped."""
    attempt: int | None = None
    """Number of the newest attempt; None before the first."""
    submission: int | None = None
    """Number of the newest submission."""
    until_done: str = ""
    """How it continues past its time limit: `requeue`, `array` or `chain`; "" means not at all."""
    node: str | None = None
    job_id: str | None = None
    others: tuple[str, ...] = ()
    """Ids of the run's other jobs in the queue, of which the first to start takes it."""
    told: bool = False
    """Whether the job has sent the notice of the run's end."""
    seen_step: float | None = None
    """Step from which the next rate is measured, for a program that reports none."""
    seen_time: float | None = None
    """Time of that step, Unix seconds of the node's clock."""
    updated: float | None = None
    """Time of the state, Unix seconds of this machine's clock."""


def fold(
    record: RunRecord,
    job: Job | None,
    *,
    limit: int | None = None,
    last: RunState | None = None,
    until_done: str = "",
    moment: float | None = None,
) -> RunState:
    """Computes the state of a run.

    Args:
        record: the files of the run directory.
        job: the scheduler's record of the newest job; None if the scheduler does not know it (any more).
        limit: the requested time limit, in seconds; used if the scheduler does not answer.
        last: the last known state, which smooths the rate and is used if the scheduler does not answer.
        until_done: how the run continues past its time limit.
        moment: Unix seconds of this machine's clock.
    """
    judged, updated = _with_last(_going_on(verdict(record, job), job, until_done), job, last, moment)
    newest = record.started
    start: Mapping[str, Any] = (newest.start if newest else None) or {}
    state = RunState(
        judged.state,
        judged.why,
        judged.final,
        expected_start=_expected_start(record, job, moment) if judged.state.waiting else None,
        elapsed_seconds=_elapsed(record, job, judged.state),
        limit_seconds=(job.limit_seconds if job else None) or limit,
        attempt=newest.number if newest else None,
        until_done=until_done,
        node=(job.node if job else None) or text(start.get("node")),
        job_id=job.job_id if job else text(start.get("job_id")),
        told=judged.final and ((newest.exit if newest else None) or {}).get("told") is True,
        updated=updated,
    )
    told = replace(state, why=_joined(tried_again(record), state.why))
    return _with_unreadable(_with_heartbeat(told, record, last, moment), record)


def tried_again(record: RunRecord) -> str | None:
    """Returns which try of a submission by a user this is, and why, in words; None for the first."""
    tries: list[str] = []
    for submission in record.submissions:
        if submission.refusal is None and submission.kind == "retry":
            tries.append(one_line(submission.retry or "again"))
        elif submission.kind != "chain":
            tries = []
        starts = (attempt.start or {} for attempt in record.attempts)
        mine = (start for start in starts if start.get("submission") == submission.number)
        tries += [one_line(start["retry"]) for start in mine if start.get("retry")]
    return f"try {len(tries) + 1}, {tries[-1]}" if tries else None


def _joined(first: str | None, second: str | None) -> str | None:
    return "; ".join(part for part in (first, second) if part) or None


def _short(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST else None


_SHAPE: Shape = {
    **dict.fromkeys(("why", "until_done", "outlook", "node", "job_id"), _short),
    **dict.fromkeys(("final", "stale", "told"), flag),
    **dict.fromkeys(("limit_seconds", "attempt", "submission"), whole),
    "others": texts,
    **dict.fromkeys(
        (
            *("progress", "eta_seconds", "steps_per_second", "success", "expected_start", "elapsed_seconds"),
            *("gpu", "heartbeat_age", "seen_step", "seen_time", "updated"),
        ),
        finite,
    ),
}


@lru_cache(maxsize=10_000)
def remembered(said: str) -> RunState | None:
    """Parses a state written by `to_text`; None for another version or no state."""
    try:
        document = parse_object(said) or {}
        state = JobState(document.pop("state", ""))
    except ValueError:
        return None
    known, _ = shaped({name: document[name] for name in _SHAPE if document.get(name) is not None}, _SHAPE)
    return RunState(state, **{**known, "others": tuple(known.get("others", ()))})


def to_text(state: RunState) -> str:
    """Formats a state as one line of JSON."""
    return json.dumps(asdict(state), ensure_ascii=False)


def _going_on(judged: StateVerdict, job: Job | None, until_done: str) -> StateVerdict:
    """Keeps a run that continues past its time limit pending between attempts, even without an answer."""
    if until_done and judged.state is JobState.PREEMPTED and job is not None and not job.confirmed:
        return replace(judged, state=JobState.PENDING, why=f"it checkpointed and will continue; {job.reason}")
    return judged


def _with_unreadable(state: RunState, record: RunRecord) -> RunState:
    """Adds the run's unreadable files to `why`, because the state may be wrong."""
    names = record.unreadable
    if not names:
        return state
    said = f"cannot be read: {listed(names, _NAMED)}"
    return replace(state, why=f"{state.why}; {said}" if state.why else said)


def _with_last(
    judged: StateVerdict, job: Job | None, last: RunState | None, moment: float | None
) -> tuple[StateVerdict, float | None]:
    """Replaces UNKNOWN with the last active state and its time if the scheduler did not answer."""
    unasked = job is not None and not job.confirmed and judged.state is JobState.UNKNOWN
    if not unasked or last is None or not last.state.active:
        return judged, moment
    age = f" {_duration(moment - last.updated)} ago" if moment and last.updated else ""
    return replace(judged, state=last.state, why=f"last known{age}; {judged.why}"), last.updated


def _with_heartbeat(
    state: RunState, record: RunRecord, last: RunState | None, moment: float | None
) -> RunState:
    beat: Mapping[str, Any] = record.heartbeat or {}
    step, total = number(beat, "step"), number(beat, "total_steps")
    running = state.state is JobState.RUNNING
    progress = min(1.0, max(0.0, step / total)) if step is not None and total else None
    silent = silence(record) if running else None
    stale = silent is not None and silent > STALE_SECONDS
    known = last if last and last.attempt == state.attempt else None
    # an ended run gets its mean rate, because its last seconds are not typical
    ended = Pace(_mean(record, step) or number(beat, "steps_per_second"))
    told = _recent(record, step, known, moment) if running else ended
    rate = told.rate
    left = outlook = None
    if running and not stale and rate and rate > 0 and step is not None and total and progress is not None:
        left = time_left(step=step, total=total, rate=rate, age=max(0.0, silent or 0.0))
        left = left if left < _FOREVER else None
        if left is not None and state.elapsed_seconds is not None and state.limit_seconds:
            outlook = at_the_limit(
                left=left,
                share=progress,
                elapsed=state.elapsed_seconds,
                limit=state.limit_seconds,
                goes_on=state.until_done,
            )
    if beat.get("phase") == "bench":
        rate = None  # its steps are seconds
    gpu = beat.get("gpu")
    return replace(
        state,
        why=f"no heartbeat for {_duration(silent)}: it may hang" if stale and silent else state.why,
        progress=progress,
        eta_seconds=left,
        steps_per_second=rate,
        seen_step=told.since.step if told.since else None,
        seen_time=told.since.time if told.since else None,
        success=number(beat, "success"),
        outlook=outlook,
        gpu=number(gpu, "utilization") if running and not stale and isinstance(gpu, dict) else None,
        heartbeat_age=silent,
        stale=stale,
    )


def _recent(record: RunRecord, step: float | None, last: RunState | None, moment: float | None) -> Pace:
    """Returns the rate of a running run, as reported or from two observations, without the start-up."""
    beat = record.heartbeat or {}
    rate, until = number(beat, "steps_per_second"), number(beat, "time")
    if rate is not None:
        if last and last.updated and moment:
            rate = smoothed(rate, last.steps_per_second, moment - last.updated)
        return Pace(rate)
    began = _began(record)
    if step is None or until is None or (began is not None and until <= began.time):
        return Pace()
    before = Pace()
    # null means that the program reports rates but has none yet
    if last and last.seen_step is not None and last.seen_time is not None and "steps_per_second" not in beat:
        before = Pace(last.steps_per_second, Sighting(last.seen_step, last.seen_time))
    return pace(Sighting(step, until), began, before)


def _began(record: RunRecord) -> Sighting | None:
    newest = record.started
    start: Mapping[str, Any] = (newest.start if newest else None) or {}
    moment = number(start, "started")
    return None if moment is None else Sighting(number(start, "step") or 0.0, moment)


def _mean(record: RunRecord, step: float | None) -> float | None:
    """Returns the mean steps per second of the newest attempt; None if unknown."""
    began, until = _began(record), number(record.heartbeat or {}, "time")
    if step is None or began is None or until is None or until <= began.time or step <= began.step:
        return None
    return finite((step - began.step) / (until - began.time))


def _expected_start(record: RunRecord, job: Job | None, moment: float | None) -> float | None:
    """Returns the scheduler's start estimate, by this machine's clock; None if it has passed."""
    start = unix_seconds(job.start) if job else None
    if start is None or record.now is None:
        return start
    ahead = moment - record.now if moment is not None else 0.0
    return start + (ahead if abs(ahead) > CLOCKS_DIFFER else 0.0) if start > record.now else None


def _elapsed(record: RunRecord, job: Job | None, state: JobState) -> float | None:
    """Returns the seconds since the newest start, by the scheduler or else by the run directory."""
    if job is not None and job.elapsed_seconds is not None and not state.waiting:
        return float(job.elapsed_seconds)
    newest = record.started
    started = number((newest.start if newest else None) or {}, "started")
    if newest is None or started is None or state.waiting:
        return None
    until = number(newest.exit, "ended") if newest.exit else record.now if state.active else None
    return max(0.0, until - started) if until is not None else None


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{max(0, int(seconds))} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"
