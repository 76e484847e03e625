"""The commands that rules name as the next step."""

from __future__ import annotations

from clusterkit.diagnosis.evidence import Evidence


def logs(evidence: Evidence) -> str:
    """To read the end of its log."""
    return f"clusterkit logs {evidence.subject.run_id} -n 200"


def status(evidence: Evidence) -> str:
    """To see whether it has got further."""
    return f"clusterkit status {evidence.subject.run_id}"


def cancel(evidence: Evidence) -> str:
    """To end a run that will never start."""
    return f"clusterkit cancel {evidence.subject.run_id}"


def resume(evidence: Evidence, *options: str) -> str:
    """To go on from its newest checkpoint, with other sbatch options."""
    return " ".join(
        [f"clusterkit resume {evidence.subject.run_id}", *(f"--sbatch {each}" for each in options)]
    )


def submit(evidence: Evidence) -> str:
    """To start a new run of the same profile."""
    return " ".join(
        ["clusterkit submit", *(["--profile", evidence.subject.profile] if evidence.subject.profile else [])]
    )
