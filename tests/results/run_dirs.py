"""Pulled run directories for tests, written by hand after docs/run-directory.md."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TASKS = ("reach-v3", "drawer-close-v3", "coffee-button-v3", "handle-press-v3")

STARTED = 1_767_323_045
"""Unix seconds of the first attempt; the next ones start 4,000 s apart and last 3,723 s."""


def make_run_dir(
    results: Path,
    run_id: str,
    *,
    name: str = "local-demo",
    recipe: str | None = "local-demo",
    modified: dict[str, list[Any]] | None = None,
    label: str = "",
    seed: int = 1,
    tasks: Sequence[str] = TASKS,
    steps: int = 256_000,
    evaluations: int = 8,
    episodes: int = 10,
    speed: float = 4000.0,
    values: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
    machine: dict[str, float] | None = None,
    diagnostics: dict[str, float] | None = None,
    restarted_at: int | None = None,
    sweep: dict[str, str] | None = None,
    group: str | None = None,
    cluster: str = "datalab",
) -> Path:
    """A run that learns: each task's success rises at its own pace. Deterministic.

    Args beyond the obvious: `values` of the recipe, `profile` its table, and what goes into each `run`,
    `train` and `eval` line besides what is always there.
    """
    folder = results / run_id
    folder.mkdir(parents=True)
    document: dict[str, Any] = {
        "schema": 1,
        "run_id": run_id,
        "name": name,
        "created": "2026-01-02T03:04:05Z",
        "cluster": cluster,
        "profile": {"name": name, "gpu": "a40"} | (profile or {}),
        "recipe": {"name": recipe, "values": values or {}, "modified": modified or {}} if recipe else None,
        "argv": ["python", "-m", "trainer", "train", "--recipe", recipe or "none"],
        "seed": seed,
        "total_steps": steps,
        "snapshot": {"git_commit": "0123456789abcdef", "git_branch": "main", "dirty": True},
        "image": {"digest": "sha256:0123456789abcdef", "path": "/x.sif", "bytes": 1},
        "wandb": {"run_id": run_id, "project": "demo", "entity": None, "mode": "offline"},
        "versions": {"clusterkit": "0.1.0"},
        "group": {"id": group, "index": 0, "size": 1} if group else None,
        "sweep": sweep,
    }
    if label:
        document["recipe"]["label"] = label
    (folder / "run.json").write_text(json.dumps(document))
    starts = [0] if restarted_at is None else [0, restarted_at]
    extra = {"run": header or {}, "train": machine or {}, "eval": diagnostics or {}}
    rows = _rows(seed, tasks, steps, evaluations, episodes, speed, starts)
    write_metrics(folder, [row | extra[row["kind"]] for row in rows])
    for number in range(len(starts)):
        last = number == len(starts) - 1
        _write_attempt(folder, number, code=0 if last else 85, why="completed" if last else "requeue")
    return folder


def write_metrics(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(
    step: int, success: dict[str, float], *, attempt: int = 0, episodes: int = 10
) -> dict[str, Any]:
    """An `eval` row; returns are 1000 times the success, means are over the tasks."""
    mean = sum(success.values()) / len(success)
    row: dict[str, Any] = {"kind": "eval", "step": step, "time": step / 4000, "attempt": attempt}
    row |= {"episodes": episodes, "success/mean": mean, "return/mean": 1000 * mean}
    for task, rate in success.items():
        row |= {f"success/{task}": rate, f"return/{task}": 1000 * rate}
    return row


def _rows(
    seed: int,
    tasks: Sequence[str],
    steps: int,
    evaluations: int,
    episodes: int,
    speed: float,
    starts: Sequence[int],
) -> list[dict[str, Any]]:
    noise = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for attempt, start in enumerate(starts):
        versions = {"python": "3.11.7", "torch": "2.13.0"}
        began = STARTED + 4000 * attempt
        rows.append({"kind": "run", "step": start, "time": began, "attempt": attempt, "versions": versions})
        last = steps if attempt == len(starts) - 1 else min(steps, start + steps // 2)
        for number in range(40 * start // steps + 1, 40 * last // steps + 1):
            rate = speed * noise.uniform(0.9, 1.1)
            step = number * steps // 40
            now = began + 3700 * (step - start) / max(1, last - start)
            row = {"kind": "train", "step": step, "time": now, "attempt": attempt}
            rows.append(row | {"steps_per_second": rate, "loss/critic": 1.0})
        for number in range(evaluations * start // steps + 1, evaluations * last // steps + 1):
            step = number * steps // evaluations
            rows.append(evaluation(step, _success(noise, tasks, step / steps, episodes), attempt=attempt))
    return rows


def _success(noise: random.Random, tasks: Sequence[str], progress: float, episodes: int) -> dict[str, float]:
    rates = {}
    for number, task in enumerate(tasks):
        middle = 0.15 + 0.6 * number / len(tasks)
        chance = 1 / (1 + math.exp(-12 * (progress - middle)))
        rates[task] = sum(noise.random() < chance for _ in range(episodes)) / episodes
    return rates


def _write_attempt(folder: Path, number: int, *, code: int, why: str) -> None:
    attempt = folder / "attempts" / str(number)
    attempt.mkdir(parents=True)
    started = STARTED + 4000 * number
    start = {"attempt": number, "job_id": str(4711 + number), "node": f"gpu0{number}", "started": started}
    (attempt / "start.json").write_text(json.dumps(start))
    (attempt / "exit.json").write_text(
        json.dumps({"code": code, "signal": None, "why": why, "ended": started + 3723})
    )
