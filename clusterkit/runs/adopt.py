"""Adds runs found on a cluster to the ledger, after the ledger was lost or another laptop submitted them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clusterkit.backends import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.probes import ask
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import RunRecord, records
from clusterkit.runs.roster import Roster, details
from clusterkit.runs.spec import ledger_row
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


def adopt(
    settings: Settings, ledger: Ledger, cluster: Cluster, transport: Transport, roster: Roster
) -> list[LedgerRun]:
    """Records this project's runs that the ledger does not know, in one round trip if there are any.

    Runs of other projects in the same work root, and runs that moved to another cluster, are remembered as
    such and not read again.

    Args:
        settings: the project's settings.
        ledger: receives the new runs.
        cluster: the cluster of the work root.
        transport: the connection to the cluster.
        roster: the run directories on the cluster.

    Returns:
        The new runs, oldest first, with their states still unknown.

    Raises:
        TransportError, RunError: the answer was missing or incomplete.
    """
    known = ledger.ids() | ledger.strangers(cluster.name)
    unknown = [f"{roster.runs}/{name}" for name in roster.names if name not in known]
    if not unknown:
        return []
    documents, files = details(unknown), records(unknown)
    answers = ask(transport, documents, files, timeout=300.0)
    described, read = answers.of(documents), answers.of(files)
    found, strangers = [], []
    for path in unknown:
        run = _entry(described.get(path, {}), path, cluster, read[path])
        theirs = described.get(path, {}).get("project") or settings.project.name
        if run is None or theirs != settings.project.name:
            strangers.append(path.rpartition("/")[2])
        else:
            found.append(run)
    found.sort(key=lambda run: (run.submitted, run.run_id))
    ledger.add_all(found)
    ledger.add_strangers(cluster.name, strangers)
    return found


def _entry(detail: Mapping[str, Any], path: str, cluster: Cluster, record: RunRecord) -> LedgerRun | None:
    """Returns a run's ledger row; None if clusterkit did not write its run.json."""
    name = path.rpartition("/")[2]
    newest, started = record.submission, record.started
    start = (started.start if started else None) or {}
    job_id = newest.job_id(backend_of(cluster)) if newest else None
    if job_id is None and (newest is None or start.get("submission", 0) == newest.number):
        job_id = str(start.get("job_id") or "")
    try:
        run = replace(
            ledger_row(detail, cluster=cluster.name, run_dir=path),
            job_id=job_id or "",
            state=JobState.UNKNOWN if job_id else JobState.SUBMITTING,
            submission=newest.number if newest else 0,
            part=_part(record),
            until_done=str(((newest.request if newest else None) or {}).get("until_done") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return run if run.run_id == name else None


def _part(record: RunRecord) -> int:
    """Returns the number of the run's submission within its group."""
    first = next((each for each in record.submissions if each.number == 0), None)
    return int(((first.request if first else None) or {}).get("part") or 0)
