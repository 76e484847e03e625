"""Causes: nothing is wrong, or nothing that these rules know."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import status
from clusterkit.diagnosis.rules.said import exited
from clusterkit.units import significant

COMPLETED = Cause("completed", "it completed", "`clusterkit sync-results` brings it home", trouble=False)
RUNNING = Cause("running", "it is running, and nothing is wrong", "wait", trouble=False)
ENDING = Cause("ending", "it is about to end", "ask again in a minute", trouble=False)
SUSPENDED = Cause(
    "suspended",
    "the scheduler has suspended it for another job",
    "wait: it continues by itself",
    trouble=False,
)


def completed(evidence: Evidence) -> Finding | None:
    """COMPLETED."""
    if evidence.state.state is not JobState.COMPLETED:
        return None
    return COMPLETED.found(
        exited(evidence),
        *evidence.story.quote(Topic.COMPLETED),
        command=f"clusterkit sync-results {evidence.subject.run_id}",
    )


def running(evidence: Evidence) -> Finding | None:
    """RUNNING, with a heartbeat or without one."""
    if evidence.state.state is not JobState.RUNNING or evidence.state.stale:
        return None
    state, beat = evidence.state, evidence.record.heartbeat or {}
    done = f"{state.progress:.0%} of its steps are done" if state.progress is not None else ""
    rate = f"{significant(state.steps_per_second)} steps/s" if state.steps_per_second else ""
    return RUNNING.found(
        Line("heartbeat.json", f"step {beat['step']} of {beat.get('total_steps', '?')}")
        if "step" in beat
        else None,
        *evidence.program_log.tail(1),
        detail=", ".join(part for part in (done, rate) if part),
        command=f"clusterkit logs {evidence.subject.run_id} --follow",
    )


def suspended(evidence: Evidence) -> Finding | None:
    """SUSPENDED."""
    if evidence.state.state is not JobState.SUSPENDED:
        return None
    return SUSPENDED.found(_state(evidence), command=status(evidence))


def ending(evidence: Evidence) -> Finding | None:
    """COMPLETING."""
    if evidence.state.state is not JobState.COMPLETING:
        return None
    return ENDING.found(
        _state(evidence),
        exited(evidence),
        command=f"clusterkit why {evidence.subject.run_id}",
        sure=Sure.GENERAL,
    )


RULES = (completed, running, suspended, ending)


def _state(evidence: Evidence) -> Line:
    return Line(evidence.story.source, evidence.story.raw_state)
