"""Slurm's answers about one job for `clusterkit why`, and causes specific to Slurm. Pure."""

from __future__ import annotations

from clusterkit.backends.causes import Cause
from clusterkit.backends.slurm.why import limits, waiting
from clusterkit.backends.slurm.why.answer import read, script
from clusterkit.backends.slurm.why.story import story_of
from clusterkit.backends.story import JobStory, Subject
from clusterkit.probes import Probe

_RULES = (*limits.RULES, *waiting.RULES)
CAUSES: tuple[Cause, ...] = tuple(
    value for theme in (limits, waiting) for value in vars(theme).values() if isinstance(value, Cause)
)


def probe(subject: Subject) -> Probe[JobStory]:
    """Returns a probe that asks squeue, sacct and scontrol about a job, its partition, nodes and limits."""

    def story(stdout: str) -> JobStory:
        answer = read(subject, stdout)
        findings = tuple(finding for rule in _RULES if (finding := rule(answer)) is not None)
        return story_of(answer, findings)

    return Probe("story", script(subject), story)
