"""Rules by theme: each examines the evidence and finds one cause or nothing. Pure.

Rules about logs apply only to runs that ended badly; the distance of a message from the end of its log
decides how certain the finding is. Among equally certain findings the first rule wins, so specific rules come
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusterkit.backends.causes import Cause, Finding
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules import (
    container,
    environment,
    gpu,
    health,
    launcher,
    memory,
    node,
    program,
    storage,
    submission,
    surroundings,
    time,
    waiting,
    wandb,
)
from clusterkit.diagnosis.rules.said import Rule

_THEMES = (
    waiting,
    memory,
    time,
    node,
    container,
    environment,
    storage,
    gpu,
    launcher,
    surroundings,
    program,
    wandb,
    health,
)
CAUSES: tuple[Cause, ...] = tuple(
    value for theme in (submission, *_THEMES) for value in vars(theme).values() if isinstance(value, Cause)
)
"""All causes of these rules, in the order of their files; a scheduler may add more."""


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Returns all findings: first on the submission, then the scheduler's own, then all others."""
    yield from _found(evidence, submission.RULES)
    job = evidence.story.job
    if job is not None and job.state is evidence.state.state:
        yield from evidence.story.findings
    for theme in _THEMES:
        yield from _found(evidence, theme.RULES)


def _found(evidence: Evidence, rules: Sequence[Rule]) -> Iterator[Finding]:
    return (finding for rule in rules if (finding := rule(evidence)) is not None)
