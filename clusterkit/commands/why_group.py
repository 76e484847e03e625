"""why, of a group: which causes its runs have, each shown by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.commands.why import ask
from clusterkit.diagnosis import Diagnosis, diagnose, parse_evidence
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import query
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

MOST = 24
"""Runs whose evidence is collected: one round trip each, and questions to the scheduler."""


@dataclass(frozen=True)
class Shared:
    """A cause, and the runs that have it."""

    exemplar: Diagnosis
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Causes:
    """Why the runs of a group are as they are."""

    group: str
    runs: int
    shared: tuple[Shared, ...]
    """Causes that need action first, then by frequency."""
    not_asked: tuple[str, ...]
    """Runs beyond the `MOST` that are asked about."""


def why_group(settings: Settings, ledger: Ledger, runs: Sequence[LedgerRun]) -> Causes:
    """Why each run of a group waits, failed or is silent; one login a cluster.

    Of runs that have completed only the first is asked about.

    Args:
        settings: of the project.
        ledger: knows the runs.
        runs: of one group.

    Raises:
        RunError: an answer was cut short.
        TransportError: a cluster cannot be reached.
    """
    found: dict[str, tuple[Diagnosis, list[str]]] = {}
    not_asked: list[str] = []
    asked = 0
    for name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == name]
        cluster = settings.cluster(name)
        with connected(cluster) as transport:
            completed: Diagnosis | None = None
            for run, state in zip(mine, query(cluster, transport, mine), strict=True):
                done = state.state is JobState.COMPLETED
                if done and completed is not None:
                    diagnosis = completed
                elif asked == MOST:
                    not_asked.append(run.run_id)
                    continue
                else:
                    asked += 1
                    diagnosis = diagnose(parse_evidence(ask(cluster, transport, ledger, run)))
                if done:
                    completed = diagnosis
                found.setdefault(diagnosis.finding.cause.slug, (diagnosis, []))[1].append(run.run_id)
    shared = [Shared(exemplar, tuple(ids)) for exemplar, ids in found.values()]
    shared.sort(key=lambda one: (not one.exemplar.finding.cause.trouble, -len(one.run_ids)))
    return Causes(runs[0].group, len(runs), tuple(shared), tuple(not_asked))
