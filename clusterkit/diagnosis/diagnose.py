"""Picks the one cause among what the rules find. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.diagnosis.evidence import Evidence, Line, Text
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules import RULES

UNKNOWN = Cause(
    "unknown",
    "no rule knows this",
    "read the last lines of the log; the administrators can look the job id up",
)


@dataclass(frozen=True)
class Diagnosis:
    """Why a run is as it is."""

    evidence: Evidence
    finding: Finding
    """The one cause."""
    also: tuple[Finding, ...] = ()
    """What else was seen, the surest first."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """The surest finding; among equally sure ones that of the rule that comes first."""
    found: dict[str, Finding] = {}
    for rule in RULES:
        finding = rule(evidence)
        if finding is not None and (
            finding.cause.slug not in found or found[finding.cause.slug].sure < finding.sure
        ):
            found[finding.cause.slug] = finding
    ranked = sorted(found.values(), key=lambda each: -each.sure)
    if not ranked:
        return Diagnosis(evidence, _unknown(evidence))
    first, *others = ranked
    # A bare exit code beside a real cause is no news.
    also = tuple(each for each in others if each.sure > Sure.GENERAL and each.cause.trouble)
    return Diagnosis(evidence, first, also)


def _unknown(evidence: Evidence) -> Finding:
    log = evidence.texts.get("log") or evidence.texts.get("slurm.log") or Text("log")
    said = (
        Line("scheduler", f"{evidence.raw_state} {evidence.reason}".strip()) if evidence.raw_state else None
    )
    return UNKNOWN.found(
        said,
        *log.tail(8),
        command=f"clusterkit logs {evidence.subject.run_id} -n 200",
        sure=Sure.GENERAL,
    )
