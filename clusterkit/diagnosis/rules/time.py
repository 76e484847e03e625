"""Causes: time limits and lack of progress."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line
from clusterkit.backends.jobs import JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, resume
from clusterkit.diagnosis.rules.said import exited

TIME_LIMIT = Cause(
    "time-limit",
    "it reached its time limit",
    "`resume` continues from the newest checkpoint; `submit --until-done` does so automatically",
)
DEADLINE = Cause(
    "deadline", "it could not end before its deadline", "submit it earlier, or with a later deadline"
)
NO_PROGRESS = Cause(
    "no-progress",
    "it was restarted several times without progress, and was stopped",
    "look at its last attempt; it must reach a checkpoint before its time is up",
    of_recipe="a smaller `checkpoint_every` makes them more often",
)


def time_limit(evidence: Evidence) -> Finding | None:
    """TIMEOUT, by the scheduler or job.sh."""
    if evidence.state.state is not JobState.TIMEOUT or evidence.story.deadline:
        return None
    heartbeat = evidence.record.heartbeat or {}
    newest = heartbeat.get("checkpoint")
    done = f"{evidence.state.progress:.0%} done" if evidence.state.progress is not None else ""
    return TIME_LIMIT.found(
        evidence.story.log_says.get(JobState.TIMEOUT),
        *evidence.story.quote(Topic.TIME_LIMIT),
        exited(evidence),
        Line("heartbeat.json", f"newest checkpoint {newest}") if newest else None,
        detail=done,
        command=resume(evidence),
    )


def deadline(evidence: Evidence) -> Finding | None:
    """DEADLINE."""
    if not evidence.story.deadline:
        return None
    return DEADLINE.found(
        *evidence.story.quote(Topic.DEADLINE),
        command=resume(evidence),
    )


def no_progress(evidence: Evidence) -> Finding | None:
    """job.sh stopped a run that made no progress between attempts."""
    stopped = evidence.record.stopped
    if stopped is None or evidence.state.state.active or evidence.state.state is JobState.COMPLETED:
        return None
    why = str(stopped.get("why") or "")
    return NO_PROGRESS.found(Line("stopped.json", why), exited(evidence), detail=why, command=logs(evidence))


RULES = (no_progress, time_limit, deadline)
