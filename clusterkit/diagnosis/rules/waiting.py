"""Causes of waiting: other jobs, or its turn. Its scheduler's rules know the others."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Sure
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import status
from clusterkit.diagnosis.rules.said import exited

DEPENDENCY_FAILED = Cause(
    "dependency-failed",
    "the job it waits for failed, so it will never start",
    "cancel it, correct and resubmit the first job, and then submit this one again",
)
DEPENDENCY = Cause("dependency", "it waits for another job to end", "wait", trouble=False)
WAITING = Cause("waiting", "it waits its turn, and nothing is wrong", "wait", trouble=False)


def dependency_failed(evidence: Evidence) -> Finding | None:
    """It can never start, because its dependency failed."""
    story = evidence.story
    if story.job is None or not story.job.in_vain:
        return None
    return DEPENDENCY_FAILED.found(
        story.waits, *story.quote(Topic.DEPENDENCY), command=evidence.subject.cancel
    )


def dependency(evidence: Evidence) -> Finding | None:
    """It waits for another job, as requested."""
    story = evidence.story
    if not evidence.waiting or story.job is None or not story.job.depends:
        return None
    return DEPENDENCY.found(
        story.waits, *story.quote(Topic.DEPENDENCY), command=status(evidence), sure=Sure.LIKELY
    )


def waiting(evidence: Evidence) -> Finding | None:
    """It waits, and no other rule applies."""
    story = evidence.story
    if not evidence.waiting:
        return None
    return WAITING.found(
        story.waits,
        *story.quote(Topic.START),
        exited(evidence),
        detail=(story.job.explained if story.job else None) or evidence.state.why or story.reason,
        command=status(evidence),
        sure=Sure.GENERAL,
    )


RULES = (dependency_failed, dependency, waiting)
