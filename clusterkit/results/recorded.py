"""Reads a run's own records: from the local copy if it was synced, else from its cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import RunError
from clusterkit.probes import ask
from clusterkit.results.pulled import pulled_run
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import records
from clusterkit.runs.roster import document
from clusterkit.runs.run_dir import newest_request, read_run_dir
from clusterkit.runs.submission import Submission
from clusterkit.transport.base import Transport


@dataclass(frozen=True)
class Recorded:
    """A run as its own files describe it."""

    document: Mapping[str, Any]
    """run.json."""
    request: Submission
    """The newest submission."""
    folder: Path | None
    """The local run directory, if any."""
    run: LedgerRun | None
    """The run's ledger row, if any."""


def unreadable(run: LedgerRun) -> RunError:
    """The error for a run whose run.json on its cluster is invalid."""
    return RunError(
        f"{run.run_id}: {run.run_dir}/run.json on {run.cluster} cannot be read",
        hint="copy it back from an earlier `clusterkit sync-results`, or start a new run",
    )


def read_recorded(
    results: Path, ledger: Ledger, name: str, transport_to: Callable[[str], Transport]
) -> Recorded:
    """Read run.json and the newest request.json of a run.

    Args:
        results: the project's results folder.
        ledger: finds runs that were not synced.
        name: a run, or the path of a run directory.
        transport_to: connects to a cluster by name.

    Raises:
        RunError: the run is unknown, or its run directory is gone.
        TransportError: there is no local copy and the cluster cannot be reached.
    """
    folder = pulled_run(results, name, ledger)
    if folder is None:
        run = ledger.find_one(name)  # raises for an unknown or ambiguous name
        described, files = document(run.run_dir), records([run.run_dir])
        answers = ask(transport_to(run.cluster), described, files)
        found = answers.of(described)
        if not found.exists:
            raise RunError(
                f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
                hint="`clusterkit status` shows what happened to it",
            )
        if found.content is None:
            raise unreadable(run)
        return Recorded(found.content, answers.of(files)[run.run_dir].request, None, run)
    directory = read_run_dir(folder)
    return Recorded(directory.document, newest_request(folder), folder, ledger.get(directory.run_id))
