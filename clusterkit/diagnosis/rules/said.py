"""How rules read logs."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.diagnosis.evidence import Evidence

LAST_WORDS = 40
"""Lines from the end of a log within which an error is what ended the program: a long traceback."""


def said(
    evidence: Evidence,
    cause: Cause,
    pattern: str,
    *,
    command: str,
    detail: str = "",
    cure: str = "",
    also: tuple[Line | None, ...] = (),
) -> Finding | None:
    """A cause whose words stand in the logs of a run that ended badly, or that hangs."""
    found = last_words(evidence, pattern)
    if found is None:
        return None
    line, sure = found
    return cause.found(line, *also, command=command, detail=detail, cure=cure, sure=sure)


def last_words(evidence: Evidence, pattern: str) -> tuple[Line, Sure] | None:
    """The last line of the logs that says so, and how sure it is that this ended the run."""
    if not (evidence.ended_badly or evidence.state.stale) or (found := evidence.search(pattern)) is None:
        return None
    behind, line = found
    # Of a run that may still be running a log says what it has met, not what it died of.
    ended = evidence.ended_badly and (evidence.exit or evidence.state.state is not JobState.UNKNOWN)
    return line, Sure.LIKELY if ended and behind < LAST_WORDS else Sure.SEEN


def exited(evidence: Evidence) -> Line | None:
    """The exit record, as evidence."""
    record = evidence.exit
    started = evidence.record.started
    if not record or started is None:
        return None
    signal = f", signal {record['signal']}" if record.get("signal") else ""
    text = f"{record.get('why')}, exit code {record.get('code')}{signal}"
    return Line(f"attempts/{started.number}/exit.json", text)


def refused(evidence: Evidence) -> str:
    """What job.sh says about a container it did not start, or a step before the program that failed."""
    return str(evidence.exit.get("detail") or "")
