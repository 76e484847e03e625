"""Finds a run's best checkpoint and its newest local one from the pulled files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from clusterkit.reading import open_regular
from clusterkit.results.metrics import MetricRow, each, lines_of, rating_only, ratings


def best_steps(results: Path, run_ids: Iterable[str]) -> dict[str, int]:
    """Run id -> step of its best evaluation; runs without evaluations are omitted."""
    steps = {run_id: best_step(results / run_id / "metrics.jsonl") for run_id in run_ids}
    return {run_id: step for run_id, step in steps.items() if step is not None}


def best_step(metrics: Path) -> int | None:
    """The step with the highest mean success, or highest return if no success is logged; the last of equals.

    None without evaluations.
    """
    rows: list[MetricRow] = []
    with suppress(OSError), open_regular(metrics) as file:
        lines = (line for line in lines_of(file) if b'"eval"' in line)  # parsing takes the time
        rows += map(rating_only, each(lines))
    _, rates = ratings(rows)
    return max(rates, key=lambda step: (rates[step], step), default=None)


def newest_checkpoints(results: Path, run_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Run id -> name and time (ns) of the newest local checkpoint; runs without one are omitted."""
    found = {}
    for run_id in run_ids:
        times = {}
        for manifest in results.glob(f"{run_id}/checkpoints/step-*/manifest.json"):
            times[manifest.parent.name] = os.lstat(manifest).st_mtime_ns
        if times:
            name = max(times, key=lambda name: (times[name], name))
            found[run_id] = (name, times[name])
    return found
