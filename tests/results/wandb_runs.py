"""Offline W&B runs for tests, written by the real client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_WRITER = """
import os, sys, wandb
folder, run_id, first, last, end = sys.argv[1:6]
settings = wandb.Settings(console="off", x_disable_stats=True, silent=True)
run = wandb.init(dir=folder, id=run_id, resume="allow", project="demo", mode="offline", settings=settings,
                 config={"lr": 3e-4})
for step in range(int(first), int(last)):
    run.log({"loss": 1.0 / (1 + step), "text": "ä" * (step % 7 * 900)}, step=step)
run.finish(exit_code=int(end))
"""


def write_offline_run(
    run_dir: Path, wandb_run_id: str, steps: range, *, exit_code: int = 0, python: Path | None = None
) -> Path:
    """One start of a program that logs `steps`; returns its .wandb log. Some records cross blocks."""
    run_dir.mkdir(parents=True, exist_ok=True)
    argv = [str(python or sys.executable), "-c", _WRITER, str(run_dir), wandb_run_id]
    argv += [str(steps.start), str(steps.stop), str(exit_code)]
    env = {"PATH": os.environ["PATH"], "HOME": str(run_dir.parent), "WANDB_ERROR_REPORTING": "false"}
    before = set(run_dir.glob("wandb/offline-run-*"))
    subprocess.run(argv, env=env, cwd=run_dir.parent, check=True, capture_output=True, timeout=60)
    (written,) = set(run_dir.glob("wandb/offline-run-*")) - before
    return written / f"run-{wandb_run_id}.wandb"
