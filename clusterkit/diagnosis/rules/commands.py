"""The commands that rules suggest as the next step."""

from __future__ import annotations

import shlex

from clusterkit.config.options import NATIVE_OPTION
from clusterkit.diagnosis.arguments import command_words
from clusterkit.diagnosis.evidence import Evidence


def logs(evidence: Evidence) -> str:
    """The command to read the end of its log."""
    return f"clusterkit logs {evidence.subject.run_id} -n 200"


def status(evidence: Evidence) -> str:
    """The command to see whether it has made progress."""
    return f"clusterkit status {evidence.subject.run_id}"


def resume(evidence: Evidence, *options: str) -> str:
    """The command to resume from its newest checkpoint, with other options for its job."""
    return " ".join(
        [f"clusterkit resume {evidence.subject.run_id}", *(f"{NATIVE_OPTION} {each}" for each in options)]
    )


def retry(evidence: Evidence, cure: str, line: str) -> str:
    """A cure, and the settings line with which such a run is tried again by itself, where that can be."""
    if not evidence.backend.can.retries or "tried again" in str(evidence.exit.get("detail")):
        return cure
    return f"{cure}; `{line}` in [profiles.{evidence.subject.profile or 'NAME'}.retry] does it by itself"


def words(evidence: Evidence) -> tuple[str, ...] | None:
    """The arguments of its `submit`; None if they were not recorded."""
    first = next((each for each in evidence.record.submissions if each.number == 0), None)
    return command_words(first.command if first else None)


def submit(evidence: Evidence) -> str:
    """The command to submit a new run like it, with the same arguments."""
    known = words(evidence)
    if known is not None:
        return shlex.join(["clusterkit", "submit", *known])
    profile = evidence.subject.profile
    return _at("submit", evidence) + (f" --profile {profile}" if profile else "")


def preview(evidence: Evidence) -> str:
    """The command to preview such a submission."""
    known = words(evidence)
    if known is None:
        return f"{submit(evidence)} --dry-run"
    at = known.index("--") if "--" in known else len(known)
    return shlex.join(["clusterkit", "submit", *known[:at], "--dry-run", *known[at:]])


def deploy(evidence: Evidence, *options: str) -> str:
    """The command to send the image to the cluster."""
    return " ".join([_at("deploy", evidence), *options])


def settings(evidence: Evidence) -> str:
    """The command to show its cluster's settings and their origin."""
    return f"clusterkit config clusters.{evidence.subject.cluster} --show-origin"


def _at(command: str, evidence: Evidence) -> str:
    cluster = evidence.subject.cluster
    return f"clusterkit {command} --cluster {cluster}" if cluster else f"clusterkit {command}"
