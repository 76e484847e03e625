"""Offline W&B runs for tests, written by the real client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.doubles import forked_wandb

_WRITER = """
import os, sys, wandb
folder, run_id, first, last, end = sys.argv[1:6]
settings = wandb.Settings(console="off", x_disable_stats=True, x_save_requirements=False, silent=True)
run = wandb.init(dir=folder, id=run_id, resume="allow", project="demo", mode="offline", settings=settings,
                 config={"lr": 3e-4})
for step in range(int(first), int(last)):
    run.log({"loss": 1.0 / (1 + step), "text": "ä" * (step % 7 * 900)}, step=step)
run.finish(exit_code=int(end))
"""


def write_offline_run(
    run_dir: Path, wandb_run_id: str, steps: range, *, exit_code: int = 0, python: Path | None = None
) -> Path:
    """One start of a program that logs `steps`; returns its .wandb log. Some records cross blocks.

    It starts cold in the interpreter `python`, if one is given.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    words = [str(run_dir), wandb_run_id, str(steps.start), str(steps.stop), str(exit_code)]
    env = {"PATH": os.environ["PATH"], "HOME": str(run_dir.parent), "WANDB_ERROR_REPORTING": "false"}
    before = set(run_dir.glob("wandb/offline-run-*"))
    if python is None:
        forked_wandb.run(_WRITER, *words, folder=run_dir.parent, env=env)
    else:
        argv = [python, "-c", _WRITER, *words]
        subprocess.run(argv, env=env, cwd=run_dir.parent, check=True, capture_output=True)
    (written,) = set(run_dir.glob("wandb/offline-run-*")) - before
    return written / f"run-{wandb_run_id}.wandb"
