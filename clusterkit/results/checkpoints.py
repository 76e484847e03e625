"""What the pulled part of a run says about its checkpoints: which one is the best, and the newest here."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

_LONGEST_LINE = 1 << 20


def best_steps(results: Path, run_ids: Iterable[str]) -> dict[str, int]:
    """Run id -> step of its best evaluation; runs that have none are left out."""
    steps = {run_id: best_step(results / run_id / "metrics.jsonl") for run_id in run_ids}
    return {run_id: step for run_id, step in steps.items() if step is not None}


def best_step(metrics: Path) -> int | None:
    """The step with the highest mean success, the last of several.

    Of the evaluations of one step the one of the highest attempt counts. None where there is none.
    """
    success: dict[int, tuple[int, float]] = {}
    try:
        with metrics.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if b'"eval"' not in line or b"success/mean" not in line:
                    continue
                row = _row(line)
                if row is not None:
                    step, attempt, mean = row
                    success[step] = max(success.get(step, (-1, 0.0)), (attempt, mean), key=lambda one: one[0])
    except OSError:
        return None
    return max(success, key=lambda step: (success[step][1], step), default=None)


def _row(line: bytes) -> tuple[int, int, float] | None:
    """Step, attempt and mean success of an evaluation."""
    try:
        row = json.loads(line)
        if row["kind"] != "eval":
            return None
        step, attempt, mean = int(row["step"]), int(row.get("attempt", 0)), float(row["success/mean"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return (step, attempt, mean) if math.isfinite(mean) else None


def newest_checkpoints(results: Path, run_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Run id -> name and time (ns) of the checkpoint here that was saved last; runs without are left out."""
    found = {}
    for run_id in run_ids:
        times = {}
        for manifest in results.glob(f"{run_id}/checkpoints/step-*/manifest.json"):
            times[manifest.parent.name] = os.lstat(manifest).st_mtime_ns
        if times:
            name = max(times, key=lambda name: (times[name], name))
            found[run_id] = (name, times[name])
    return found
