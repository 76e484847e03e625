"""Makes the ledger's row of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import TOTAL_STEPS, option_of, trains


def ledger_row(document: Mapping[str, Any], *, cluster: str, run_dir: str) -> LedgerRun:
    """A run as the ledger knows it, out of what its run.json says; its job is not known yet.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the document is none of clusterkit's.
    """
    argv, env = list(document.get("argv") or ()), document.get("env") or {}
    steps = option_of(argv, "--total-steps") if trains(argv) else env.get(TOTAL_STEPS)
    return LedgerRun(
        run_id=str(document["run_id"]),
        cluster=cluster,
        name=str(document["name"]),
        profile=str(document["profile"]["name"]),
        recipe=str((document["recipe"] or {}).get("name", "")),
        seed=int(document["seed"] or 0),
        job_id="",
        submitted=str(document["created"]),
        run_dir=run_dir,
        total_steps=int(steps) if steps and steps.isdigit() else int(document["total_steps"] or 0),
        state=JobState.PENDING,
        group=str((document.get("group") or {}).get("id", "")),
    )
