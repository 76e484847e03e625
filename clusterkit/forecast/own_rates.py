"""The speed and memory of the user's own earlier runs. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import RunError
from clusterkit.forecast.speed import Rate
from clusterkit.report.evidence import read_evidence
from clusterkit.report.groups import ReportRun, read_runs
from clusterkit.report.measured import Measured, measure
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.run_dir import table
from clusterkit.runs.state import remembered
from clusterkit.untrusted import read_object

_FEWEST = 3
"""Fewest training rows from which a speed is taken."""
_TENTH = 0.1


@dataclass(frozen=True)
class OwnRun:
    """A pulled run of the same recipe."""

    rate: Rate
    memory: float | None
    """Peak main memory of its processes, bytes; None if they trained other runs, too."""
    gpu_memory: float | None


def pulled(results: Path, recipe: Mapping[str, Any]) -> list[OwnRun]:
    """The use of pulled runs of a recipe with exactly these values, oldest first.

    Args:
        results: folder of pulled runs.
        recipe: `name` and `values`, plain JSON.
    """
    found = []
    for path in sorted(results.glob("*/run.json")):
        ran = table(read_object(path) or {}, "recipe")
        if ran.get("name") == recipe["name"] and ran.get("values") == recipe["values"]:
            try:
                (run,) = read_runs([path.parent])
            except (RunError, OSError):
                continue
            if own := _own(run):
                found.append(own)
    return sorted(found, key=lambda own: own.rate.date)


def beating(ledger: Ledger, recipe: str, gpus: Mapping[str, str]) -> list[Rate]:
    """Rates of a recipe's runs from heartbeats in the ledger.

    Args:
        ledger: of the project.
        recipe: the recipe's name.
        gpus: GPU type of each profile, "" for none.
    """
    rates = []
    for run in ledger.runs():
        state = remembered(run.last) if run.recipe == recipe and run.profile in gpus else None
        if state is not None and state.steps_per_second:
            rate = state.steps_per_second
            source = f"{run.run_id}, by its heartbeat"
            rates.append(
                Rate(
                    gpus[run.profile],
                    recipe,
                    rate,
                    rate,
                    rate,
                    "you",
                    source,
                    date=run.submitted,
                    own=True,
                    cluster=run.cluster,
                )
            )
    return rates


def _own(run: ReportRun) -> OwnRun | None:
    rates = sorted(found for row in run.training if (found := row.number("steps_per_second")))
    if len(rates) < _FEWEST or rates[0] <= 0:
        return None
    evidence = read_evidence(run)
    seen, in_one = measure(evidence), evidence.asked.in_one
    overall = _overall(run, seen)
    profile = table(run.document, "profile")
    gpu = profile.get("gpu")
    rate = Rate(
        gpu=gpu if isinstance(gpu, str) else "",
        recipe=str(run.recipe["name"]),
        steps_per_second=rates[len(rates) // 2],
        low=min(rates[int(_TENTH * len(rates))], overall or rates[-1]),
        high=rates[-1 - int(_TENTH * len(rates))],
        by="you",
        source=run.directory.run_id,
        machine=seen.device or "",
        date=str(run.document.get("created", "")),
        num_envs=seen.num_envs,
        precision=seen.precision,
        gpus=gpus if isinstance(gpus := profile.get("gpus"), int) and gpus > 0 else 1,
        in_one=in_one,
        own=True,
        cluster=str(run.document.get("cluster", "")),
    )
    alone = in_one == 1  # else what was seen is the memory of all runs of its process
    return OwnRun(rate, seen.memory if alone else None, seen.gpu_memory if alone else None)


def _overall(run: ReportRun, seen: Measured) -> float | None:
    """Steps a second over the run's whole wall time, including start and last evaluation."""
    return run.last_step / seen.running if seen.completed and seen.running > 0 and run.last_step else None
