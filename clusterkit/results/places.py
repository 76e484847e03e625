"""Resolves a command's runs and their locations. Imports little, because the login starts right after it."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.errors import RunError
from clusterkit.runs.ledger import Ledger, LedgerRun


def choose_runs(ledger: Ledger, names: Sequence[str], cluster: str | None) -> list[LedgerRun]:
    """Returns the named runs, each once; all runs if no names are given.

    Raises:
        RunError: a name matches no run, or there are no runs.
    """
    runs = ledger.find(names) if names else ledger.runs()
    runs = [run for run in runs if cluster in (None, run.cluster)]
    if not runs:
        where = f" on {cluster}" if cluster else ""
        raise RunError(f"no run of this project is known{where}", hint="`clusterkit submit` starts one")
    return list({run.run_id: run for run in runs}.values())


def place(run: LedgerRun) -> tuple[str, str]:
    """Returns a run's cluster and runs folder; runs with the same place share one transfer."""
    return run.cluster, run.run_dir.rpartition("/")[0]
