"""status: where every run stands, one round trip a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError, TransportError
from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.record import collect_script, parse_collect
from clusterkit.scheduler import JobState
from clusterkit.site import connected, scheduler_of
from clusterkit.state import RunState, fold
from clusterkit.transport.base import Transport
from clusterkit.verbs.handover import settle

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

_RECENT = 15
"""Ended runs shown when none is named."""


@dataclass(frozen=True)
class StatusRow:
    """One run and where it stands."""

    run: LedgerRun
    state: RunState


@dataclass(frozen=True)
class StatusReport:
    """All runs asked for, oldest first, and the clusters that gave no answer."""

    rows: tuple[StatusRow, ...]
    silent: dict[str, str]
    """Cluster -> why; its rows show the last state known here."""
    left_out: int = 0
    """Older runs that were not asked for."""


def status(
    settings: Settings, ledger: Ledger, *, names: Sequence[str] = (), everything: bool = False
) -> StatusReport:
    """The state of runs.

    Args:
        settings: of the project.
        ledger: the runs this project knows; their last state is updated.
        names: run ids and the like; none means all that may still run and the last few that ended.
        everything: with no names, all runs.

    Raises:
        RunError: a name matches no run.
    """
    known = ledger.runs()
    runs = ledger.find(names) if names else known if everything else _recent(known)
    rows: dict[str, StatusRow] = {}
    silent: dict[str, str] = {}
    for cluster_name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == cluster_name]
        try:
            cluster = settings.cluster(cluster_name)
            with connected(cluster) as transport:
                unclear = [run for run in mine if run.state == JobState.SUBMITTING]
                if unclear:
                    settle(cluster, transport, ledger, unclear)
                    mine = [ledger.get(run.run_id) or run for run in mine]
                states = query(cluster, transport, mine)
        except (TransportError, ConfigError) as error:
            silent[cluster_name] = error.cause
            states = [RunState(JobState(run.state), why="last known") for run in mine]
        else:
            ledger.set_states((run.run_id, state.state) for run, state in zip(mine, states, strict=True))
        rows |= {run.run_id: StatusRow(run, state) for run, state in zip(mine, states, strict=True)}
    unique = tuple(rows[run.run_id] for run in dict.fromkeys(runs))
    return StatusReport(unique, silent, 0 if names else len(known) - len(unique))


def query(cluster: Cluster, transport: Transport, runs: Sequence[LedgerRun]) -> list[RunState]:
    """States of runs of one cluster, in their order, in one round trip."""
    scheduler = scheduler_of(cluster)
    script = scheduler.query_script([run.job_id for run in runs if run.job_id]) + collect_script(
        [run.run_dir for run in runs]
    )
    answer = transport.run(["sh"], stdin=script.encode("utf-8", "surrogateescape"), timeout=120.0).text
    jobs = scheduler.parse_query(answer)
    records = parse_collect(answer)
    states = [fold(records[run.run_dir], jobs.get(run.job_id)) for run in runs]
    return [_without_job(run) or state for run, state in zip(runs, states, strict=True)]


def _without_job(run: LedgerRun) -> RunState | None:
    """The state of a run the scheduler may not have, as it was settled."""
    if run.job_id:
        return None
    why = json.loads(run.last).get("why") if run.last else "it is not known yet whether there is a job"
    return RunState(JobState(run.state), why=why)


def _recent(runs: Sequence[LedgerRun]) -> list[LedgerRun]:
    ended = [run for run in runs if not JobState(run.state).active]
    hidden = {run.run_id for run in ended[:-_RECENT]}
    return [run for run in runs if run.run_id not in hidden]
