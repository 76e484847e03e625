"""Finds a run's best checkpoint and its newest local one from the pulled files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from clusterkit.untrusted import open_regular

_LONGEST_LINE = 1 << 20
_MEASURES = ("success/mean", "return/mean")
"""Metrics that rank evaluations; the second counts only if no evaluation has the first."""


def best_steps(results: Path, run_ids: Iterable[str]) -> dict[str, int]:
    """Run id -> step of its best evaluation; runs without evaluations are omitted."""
    steps = {run_id: best_step(results / run_id / "metrics.jsonl") for run_id in run_ids}
    return {run_id: step for run_id, step in steps.items() if step is not None}


def best_step(metrics: Path) -> int | None:
    """The step with the highest mean success, or highest return if no success is logged; the last of equals.

    For each step the evaluation of the highest attempt counts. None without evaluations.
    """
    found: dict[str, dict[int, tuple[int, float]]] = {measure: {} for measure in _MEASURES}
    try:
        with open_regular(metrics) as file:
            while line := file.readline(_LONGEST_LINE):
                if b'"eval"' not in line:
                    continue
                for measure, step, attempt, mean in _means(line):
                    known = found[measure].get(step, (-1, 0.0))
                    found[measure][step] = max(known, (attempt, mean), key=lambda one: one[0])
    except OSError:
        return None
    means = next((steps for steps in found.values() if steps), {})
    return max(means, key=lambda step: (means[step][1], step), default=None)


def _means(line: bytes) -> Iterator[tuple[str, int, int, float]]:
    """Measure, step, attempt and mean from an evaluation's row."""
    try:
        row = json.loads(line)
        if row["kind"] == "eval":
            step, attempt = int(row["step"]), int(row.get("attempt", 0))
            for measure in _MEASURES:
                if measure in row and math.isfinite(mean := float(row[measure])):
                    yield measure, step, attempt, mean
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return


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
