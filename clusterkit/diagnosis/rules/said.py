"""Helpers of rules that read logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.diagnosis.evidence import Evidence

Rule = Callable[[Evidence], Finding | None]

LAST_WORDS = 40
"""Lines from the end of a log in which an error counts as the program's end; a long traceback fits."""


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
    """Finds a cause by its message in the logs of a run that ended badly or hangs."""
    found = last_words(evidence, pattern)
    if found is None:
        return None
    line, sure = found
    return cause.found(line, *also, command=command, detail=detail, cure=cure, sure=sure)


def by_message(
    cause: Cause,
    pattern: str,
    *,
    command: Callable[[Evidence], str],
    detail: Callable[[str], str] = lambda _: "",
    also: Callable[[Evidence], Iterable[Line | None]] = lambda _: (),
) -> Rule:
    """A rule that finds a cause by its message in the logs of a run that ended badly or hangs.

    Args:
        cause: the cause.
        pattern: a regular expression that matches the messages.
        command: the command to run next.
        detail: details of this run, from the message.
        also: more lines that show it.
    """

    def rule(evidence: Evidence) -> Finding | None:
        found = last_words(evidence, pattern)
        if found is None:
            return None
        line, sure = found
        return cause.found(
            line, *also(evidence), command=command(evidence), detail=detail(line.text), sure=sure
        )

    return rule


def last_words(evidence: Evidence, pattern: str) -> tuple[Line, Sure] | None:
    """Returns the last matching line of the logs, and how certainly it ended the run."""
    if not (evidence.ended_badly or evidence.state.stale) or (found := evidence.search(pattern)) is None:
        return None
    behind, line = found
    # Of a run that may still be running a log says what it has met, not what it died of.
    ended = evidence.ended_badly and (evidence.exit or evidence.state.state is not JobState.UNKNOWN)
    return line, Sure.LIKELY if ended and behind < LAST_WORDS else Sure.SEEN


def exited(evidence: Evidence) -> Line | None:
    """The exit record as evidence."""
    record = evidence.exit
    started = evidence.record.started
    if not record or started is None:
        return None
    signal = f", signal {record['signal']}" if record.get("signal") else ""
    text = f"{record.get('why')}, exit code {record.get('code')}{signal}"
    return Line(f"attempts/{started.number}/exit.json", text)


def refused(evidence: Evidence) -> str:
    """job.sh's message about a container it did not start or a step that failed before the program."""
    return str(evidence.exit.get("detail") or "")
