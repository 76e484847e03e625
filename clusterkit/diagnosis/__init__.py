"""Why a run is as it is: one round trip collects the evidence, rules name one cause. Pure."""

from __future__ import annotations

from clusterkit.diagnosis.collect import Subject, question
from clusterkit.diagnosis.diagnose import UNKNOWN, Diagnosis, diagnose
from clusterkit.diagnosis.evidence import Evidence, Line
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.parse import parse_evidence
from clusterkit.diagnosis.rules import CAUSES

__all__ = [
    "CAUSES",
    "UNKNOWN",
    "Cause",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Line",
    "Subject",
    "Sure",
    "diagnose",
    "parse_evidence",
    "question",
]
