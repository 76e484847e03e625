"""Which runs a command is about, and where they lie. Imports little: the login begins right after it."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.errors import RunError
from clusterkit.runs.ledger import Ledger, LedgerRun


def choose_runs(ledger: Ledger, names: Sequence[str], cluster: str | None) -> list[LedgerRun]:
    """The runs that are meant, without names all of them, each once.

    Raises:
        RunError: a name matches no run, or there is none.
    """
    runs = ledger.find(names) if names else ledger.runs()
    runs = [run for run in runs if cluster in (None, run.cluster)]
    if not runs:
        where = f" on {cluster}" if cluster else ""
        raise RunError(f"no run of this project is known{where}", hint="`clusterkit submit` starts one")
    return list({run.run_id: run for run in runs}.values())


def place(run: LedgerRun) -> tuple[str, str]:
    """Cluster and folder of all runs: those of one place share one transfer."""
    return run.cluster, run.run_dir.rpartition("/")[0]
