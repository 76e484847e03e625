"""What a run's checkpoints are: the best, the newest, and the files that one consists of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from clusterkit.results.selection import newest
from clusterkit.untrusted import open_regular, table


def best_steps(results: Path, run_ids: Iterable[str]) -> dict[str, int]:
    """Run id -> step of its best evaluation; runs without evaluations are omitted."""
    steps = {run_id: best_step(results / run_id / "metrics.jsonl") for run_id in run_ids}
    return {run_id: step for run_id, step in steps.items() if step is not None}


def best_step(metrics: Path) -> int | None:
    """The step with the highest mean success, or highest return if no success is logged; the last of equals.

    None without evaluations.
    """
    from clusterkit.results.metrics import MetricRow, each, lines_of, rating_only, ratings  # few need it

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
        manifests = results.glob(f"{run_id}/checkpoints/step-*/manifest.json")
        times = {manifest.parent.name: os.lstat(manifest).st_mtime_ns for manifest in manifests}
        if (name := newest(times)) is not None:
            found[run_id] = (name, times[name])
    return found


def replay_segments(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The replay files that a checkpoint's manifest lists; an empty one for an entry that is malformed."""
    listed = (table(manifest.get("replay")) or {}).get("segments")
    entries = listed if isinstance(listed, list) else []
    return [entry if isinstance(entry, dict) else {} for entry in entries]
