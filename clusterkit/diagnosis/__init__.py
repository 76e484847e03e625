"""Diagnoses a run: one round trip collects the evidence, and rules name one cause. Pure."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.story import Subject
from clusterkit.diagnosis.collect import parse_evidence, question
from clusterkit.diagnosis.diagnose import UNKNOWN, Diagnosis, diagnose
from clusterkit.diagnosis.evidence import Evidence
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
