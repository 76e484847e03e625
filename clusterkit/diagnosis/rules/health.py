"""Causes: nothing is wrong, or nothing that these rules know."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import status
from clusterkit.diagnosis.rules.said import exited
from clusterkit.units import significant

_RAISED = re.compile(r"[\w.]*(?:Error|Exception)(?::|$)")
"""The last line of a Python traceback."""

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
    """COMPLETED, and the exception that its log ends with: pipes, threads and children hide exit codes."""
    if evidence.state.state is not JobState.COMPLETED:
        return None
    spoken = [line for line in evidence.program_log.tail(4) if not line.text.startswith("[clusterkit]")]
    raised = spoken[-1] if spoken and _RAISED.match(spoken[-1].text) else None
    return COMPLETED.found(
        raised,
        exited(evidence),
        *evidence.story.quote(Topic.COMPLETED),
        detail="its exit code is 0, but its log ends with an error" if raised else "",
        command=f"clusterkit {'logs' if raised else 'sync-results'} {evidence.subject.run_id}",
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
