"""Picks one cause among the rules' findings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from clusterkit.backends.causes import Cause, Finding, Line, Sure, Text
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules import findings
from clusterkit.runs.state import tried_again

_LONGEST = 400
"""The maximum number of characters of a line to show."""
UNKNOWN = Cause(
    "unknown",
    "the cause is not known",
    "read the last lines of the log; the administrators can look up the job id",
)


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a run."""

    evidence: Evidence
    finding: Finding
    """The one cause."""
    also: tuple[Finding, ...] = ()
    """Other findings, the most certain first."""

    def as_object(self) -> dict[str, Any]:
        """Returns plain values, as `why --json` prints them."""
        state = self.evidence.state
        return {
            "run_id": self.evidence.subject.run_id,
            "job_id": self.evidence.subject.job_id,
            "state": state.state.value,
            "node": state.node,
            "attempt": state.attempt,
            **_object(self.finding),
            "also": [_object(other) for other in self.also],
        }


def diagnose(evidence: Evidence) -> Diagnosis:
    """Returns the most certain finding; among equals that of the first rule."""
    found: dict[str, Finding] = {}
    for finding in findings(evidence):
        known = found.get(finding.cause.slug)
        if known is None or known.sure < finding.sure:
            found[finding.cause.slug] = finding
    ranked = sorted(found.values(), key=lambda each: -each.sure)
    if not ranked:
        return Diagnosis(evidence, _unknown(evidence))
    if evidence.subject.recipe:
        ranked = [
            replace(each, cure=f"{each.cure}; {each.cause.of_recipe}") if each.cause.of_recipe else each
            for each in ranked
        ]
    first, *others = ranked
    if not first.evidence and (said := _said(evidence)):
        first = replace(first, evidence=(said,))
    if tries := tried_again(evidence.record):
        first = replace(first, evidence=(*first.evidence, Line("submissions", tries)))
    # A bare exit code beside a real cause is no news.
    also = tuple(each for each in others if each.sure > Sure.GENERAL and each.cause.trouble)
    return Diagnosis(evidence, first, also)


def _unknown(evidence: Evidence) -> Finding:
    log = evidence.texts.get("log") or evidence.texts.get(SCHEDULER_LOG) or Text("log")
    return UNKNOWN.found(
        _said(evidence),
        *log.tail(8),
        command=f"clusterkit logs {evidence.subject.run_id} -n 200",
        sure=Sure.GENERAL,
    )


def _said(evidence: Evidence) -> Line | None:
    """The scheduler's name of the state, with its reason."""
    story = evidence.story
    return Line("scheduler", f"{story.raw_state} {story.reason}".strip()) if story.raw_state else None


def _object(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause.slug,
        "trouble": finding.cause.trouble,
        "sentence": shortened(finding.sentence),
        "evidence": [{"source": line.source, "text": shortened(line.text)} for line in finding.evidence],
        "cure": finding.cure,
        "next": finding.next,
        "sure": finding.sure.name.lower(),
    }


def shortened(text: str) -> str:
    """Returns at most as much of a line as is shown; a line of a log may be a megabyte long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
