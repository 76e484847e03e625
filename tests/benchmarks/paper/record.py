"""What runs have told, kept in docs/paper-full.json: an entry for each, whether it is at its end or not."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.paper.pieces import ROOT, pieces
from tests.benchmarks.paper.rows import ROWS
from trainer.files import atomic_write_bytes

RESULTS = ROOT / "docs" / "paper-full.json"
_ENDS = {0: "done", 85: "limit", -9: "killed", None: "open"}
_TRAINING = ("steps_per_second", "loss/critic", "q/mean")
_INNERMOST = re.compile(r"[\[{][^][{}]*[]}]")
"""A list or object of JSON with no other in it."""
Run = dict[str, Any]


def read_run(run_dir: Path) -> Run:
    """Returns the entry of a run, from its list of pieces and its metrics.

    `evaluations` and `training` are columns of equal length. Their minutes are of the clock of the run, which
    stands still between pieces. What a killed piece did after its last checkpoint is in its minutes, and of
    its metrics only what the next piece has not told anew.
    """
    name, _, seed = run_dir.name.rpartition("-")
    row = ROWS[name]
    lines = list(_lines(run_dir / "metrics.jsonl"))
    clock = _Clock(pieces(run_dir), [line["time"] for line in lines])
    heads = [line for line in lines if line["kind"] == "run"]
    found: dict[str, dict[int, dict[str, Any]]] = {"eval": {}, "train": {}}
    for line in lines:
        if line["kind"] == "run":  # it goes on from here, whatever was told of later steps
            found = {
                kind: {step: one for step, one in rows.items() if step <= line["step"]}
                for kind, rows in found.items()
            }
        elif line["kind"] in found:
            found[line["kind"]][line["step"]] = line
    evaluations, training = (list(found[kind].values()) for kind in ("eval", "train"))
    first = heads[0]
    return {
        "row": name,
        "seed": int(seed),
        "recipe": row.recipe,
        "modified": {key: used for key, (_, used) in first["modified"].items()},
        "total_steps": row.steps,
        "num_envs": first["num_envs"],
        "precision": first["precision"],
        "pieces": clock.entries(heads),
        "evaluations": {
            "step": [one["step"] for one in evaluations],
            "minutes": [clock.minutes(one["time"]) for one in evaluations],
            "episodes": [one["episodes"] for one in evaluations],
            "success": {
                task.removesuffix("-v3"): [round(one[f"success/{task}"], 4) for one in evaluations]
                for task in first["tasks"]
            },
        },
        "training": {
            "step": [one["step"] for one in training],
            "minutes": [clock.minutes(one["time"]) for one in training],
            **{key: [_short(one.get(key)) for one in training] for key in _TRAINING},
        },
    }


class _Clock:
    """The time of a run, which stands still between its pieces.

    Args:
        listed: the pieces; one whose end nobody saw, because its runner was killed too, ends with the last
            line that it wrote.
        times: when each line of the metrics was written, Unix seconds.
    """

    def __init__(self, listed: list[dict[str, Any]], times: Iterable[float]) -> None:
        begins = [piece["began"] for piece in listed] + [float("inf")]
        written = list(times)
        self._pieces = []
        for piece, (begin, following) in zip(listed, pairwise(begins), strict=True):
            own = [time for time in written if begin <= time < following]
            end = piece.get("ended") or max(own, default=begin)
            self._pieces.append({**piece, "ended": end})

    def minutes(self, time: float) -> float:
        """How long the run had run by then."""
        spent = (max(0.0, min(piece["ended"], time) - piece["began"]) for piece in self._pieces)
        return round(float(sum(spent)) / 60, 2)

    def entries(self, heads: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns what there is to say of each piece; `heads` are the `run` lines of the metrics."""
        listed = []
        for piece in self._pieces:
            own = [head for head in heads if piece["began"] <= head["time"] <= piece["ended"]]
            where = own[-1] if own else {}
            entry = {
                "device": where.get("device"),
                "processors": where.get("processors"),
                "torch": where.get("versions", {}).get("torch"),
                "commit": piece["commit"],
                "from": where.get("step"),
                "to": piece.get("step"),
                "minutes": round((piece["ended"] - piece["began"]) / 60, 2),
                "end": _ENDS.get(piece.get("code"), "failed"),
                "sha256": piece.get("sha256"),
            }
            listed.append(entry)
        return listed


def runs(path: Path = RESULTS) -> list[Run]:
    """Returns the entries of a file; none where there is no file."""
    found: list[Run] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


def collect(sources: Iterable[Path], results: Path = RESULTS) -> None:
    """Adds the entries of runs' folders, and of other such files, in the place of those there.

    Of a run that both have, the one with more pieces stays.
    """
    held = {(run["row"], run["seed"]): run for run in runs(results)}
    for source in sources:
        for run in [read_run(source)] if source.is_dir() else runs(source):
            key = run["row"], run["seed"]
            if key not in held or len(run["pieces"]) >= len(held[key]["pieces"]):
                held[key] = run
    order = list(ROWS)
    kept = sorted(held.values(), key=lambda run: (order.index(run["row"]), run["seed"]))
    atomic_write_bytes(results, written(kept).encode())


def written(kept: Iterable[Run]) -> str:
    """Returns the entries as JSON that shows a column or a piece on each line."""
    text = json.dumps({"schema": 1, "runs": list(kept)}, indent=1, allow_nan=False)
    return _INNERMOST.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def _lines(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of a file of metrics, without those torn by a kill."""
    for line in metrics.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def _short(value: float | None) -> float | None:
    """Rounds to four digits; a number that is not finite is none."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None
