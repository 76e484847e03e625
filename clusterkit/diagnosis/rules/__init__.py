"""Rules by theme: each looks at the evidence and finds one cause, or nothing. Pure.

A rule of a log looks only at runs that ended badly; how far from the end of the log its words stand
decides how sure it is. Among rules that are equally sure the earlier one wins: the special come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from clusterkit.backends.causes import Cause, Finding
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules import (
    container,
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

_THEMES = (
    waiting,
    memory,
    time,
    node,
    container,
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
"""All that these rules can find, in the order of their files; a scheduler may know more."""


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Everything that is found: after what became of its submission what the scheduler says itself."""
    yield from _found(evidence, submission.RULES)
    job = evidence.story.job
    if job is not None and job.state is evidence.state.state:
        yield from evidence.story.findings
    for theme in _THEMES:
        yield from _found(evidence, theme.RULES)


def _found(evidence: Evidence, rules: Sequence[Callable[[Evidence], Finding | None]]) -> Iterator[Finding]:
    return (finding for rule in rules if (finding := rule(evidence)) is not None)
