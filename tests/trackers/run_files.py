"""A run that was requeued twice: its metrics.jsonl, and what its trackers must show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusterkit.results.tracked import tracked_rows
from clusterkit.trackers.base import TrackedRun, Tracker

RUN_ID = "mine-20260102-030405-k3f9"
STARTS = (range(1, 31), range(21, 51), range(41, 71))
"""Steps of the three starts of a run that was requeued twice; each begins again at a checkpoint."""
ALL_STEPS = list(range(1, 71))


def line(step: int, attempt: int = 0, kind: str = "train", **numbers: Any) -> str:
    row = {"kind": kind, "step": step, "time": 1767243600 + 100 * attempt + step, "attempt": attempt}
    return json.dumps(row | numbers) + "\n"


def lines(steps: Iterable[int], attempt: int) -> str:
    """Lines of a start; `loss` says which one, `speed` is in none but every third."""
    text = ""
    for step in steps:
        speed = {"speed": 10.0 * attempt} if step % 3 == 0 else {}
        text += line(step, attempt, loss=attempt + step / 128, **speed)
        if step % 10 == 0:
            text += line(step, attempt, "eval", **{"success/mean": step / 128})
    return text


def append(run_dir: Path, text: str) -> Path:
    """Add to a run's metrics.jsonl, which is made; returns it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    metrics = run_dir / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write(text)
    return metrics


def log(tracker: Tracker, run: TrackedRun, metrics: Path) -> bool:
    """Bring a run up to date in a tracker from its metrics.jsonl."""
    return tracker.log(run, tracked_rows(metrics.parent, own=True))


def expected(starts: Sequence[Iterable[int]] = STARTS, *, first: bool = False) -> Mapping[int, float]:
    """The loss at each step: of the last start that has the step, or of the first."""
    found: dict[int, float] = {}
    for attempt, steps in enumerate(starts):
        for step in steps:
            if not (first and step in found):
                found[step] = attempt + step / 128
    return found
