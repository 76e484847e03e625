"""Run directories as a node leaves them: checkpoints with manifests, replay segments, torn files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

RUN = "demo-20260102-030405-k3f9"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def make_checkpoint(run_dir: Path, step: int, *, shared: Sequence[int] = ()) -> Path:
    """A checkpoint with a segment of its own, which also lists those of the steps in `shared`."""
    folder = run_dir / "checkpoints" / f"step-{step:012d}"
    contents = {"model.pt": os.urandom(3000), "replay.pt": os.urandom(50)}
    for name, data in contents.items():
        write(folder / name, data)
    write(run_dir / "checkpoints" / segment(step), os.urandom(5000))
    files = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }
    listed = [{"file": Path(segment(each)).name, "bytes": 5000} for each in (*shared, step)]
    manifest = {"schema": 2, "step": step, "files": files, "replay": {"segments": listed}}
    write(folder / "manifest.json", json.dumps(manifest))
    return folder


def segment(step: int) -> str:
    return f"replay/{step:012d}-0123456789abcdef.rows"


def make_run(runs: Path, run_id: str = RUN) -> Path:
    run_dir = runs / run_id
    write(run_dir / "run.json", json.dumps({"schema": 1, "run_id": run_id}))
    write(run_dir / "attempts/0/log", "line\n" * 100)
    write(run_dir / "attempts/0/exit.json", json.dumps({"code": 0, "why": "completed", "ended": 1}))
    write(run_dir / "metrics.jsonl", "".join(f'{{"kind": "train", "step": {n}}}\n' for n in range(50)))
    write(run_dir / "heartbeat.json", '{"step": 1}')
    offline = run_dir / "wandb" / "offline-run-20260102_030405-w1"
    write(offline / "run-w1.wandb", b":W&B" + os.urandom(500))
    write(offline / "run-w1.wandb.synced", "")
    write(offline / "run-w1.wandb.syncstate", "{}")
    write(offline / "files/config.yaml", "a: 1\n")
    (run_dir / "wandb" / "latest-run").symlink_to(offline.name)
    make_checkpoint(run_dir, 1000)
    make_checkpoint(run_dir, 2000, shared=[1000])
    write(run_dir / "checkpoints/replay/.000000003000-0a0b0c0d.tmp", b"half")
    write(run_dir / "checkpoints/final_model.pt", os.urandom(700))
    write(run_dir / "checkpoints/.step-000000003000-0a0b0c0d/model.pt", b"half")
    return run_dir
