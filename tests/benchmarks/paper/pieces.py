"""Runs that are trained in pieces, each ended by a limit with a checkpoint, as a list in the run's folder.

A piece that is not the last one ends with exit code 85, on SIGTERM when its time is over or when whoever runs
it gets one. The list says of each piece when it began and ended, what it ran, and the sha256 of the
parameters that it left. The clock of a run is that of its pieces: pauses between them do not count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_runs import progress
from trainer import checkpoint
from trainer.checkpoint.model import digest
from trainer.files import atomic_write_json
from trainer.preemption import StopSignals

ROOT = Path(__file__).parents[3]
_NAME = "pieces.json"
_LOOK = 0.2
"""Seconds between two looks at a piece."""


def pieces(run_dir: Path) -> list[dict[str, Any]]:
    """The pieces of a run so far, oldest first."""
    path = run_dir / _NAME
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def run_piece(
    argv: Sequence[str], run_dir: Path, seconds: float, commit: str, kill_at: int | None = None
) -> int:
    """Starts a run or goes on with it, for so long at most.

    Args:
        argv: the command that starts it.
        run_dir: its folder.
        seconds: after which it gets SIGTERM; it then still writes its checkpoint.
        commit: of the code, for the list.
        kill_at: kills it once it has told of this step, unless a piece of it has been killed before.

    Returns:
        Its exit code; -9 if it was killed.

    Raises:
        SystemExit: this process has got a signal meanwhile, which the run got as SIGTERM.

    """
    run_dir.mkdir(parents=True, exist_ok=True)
    earlier = pieces(run_dir)
    if any(piece.get("code") == -signal.SIGKILL for piece in earlier):
        kill_at = None
    resumed = ["--resume"] if any(run_dir.glob("checkpoints/step-*")) else []
    piece: dict[str, Any] = {"began": time.time(), "commit": commit}
    atomic_write_json(run_dir / _NAME, [*earlier, piece])
    with StopSignals() as stop, (run_dir / "output").open("ab") as output:
        run = subprocess.Popen(
            [*argv, *resumed], cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
        code = _wait(run, piece["began"] + seconds, stop, run_dir / "metrics.jsonl", kill_at)
    piece |= {"ended": time.time(), "code": code, **_left(run_dir)}
    atomic_write_json(run_dir / _NAME, [*earlier, piece])
    if stop:
        raise SystemExit(stop.exit_code)
    return code


def _wait(
    run: subprocess.Popen[bytes], until: float, stop: StopSignals, metrics: Path, kill_at: int | None
) -> int:
    """Waits for the end of a run, which a limit, a signal or a kill may bring about."""
    told = False
    while (code := run.poll()) is None:
        if kill_at is not None and progress(metrics)["steps"] >= kill_at:
            os.killpg(run.pid, signal.SIGKILL)
            return run.wait()
        if not told and (stop or time.time() >= until):
            run.send_signal(signal.SIGTERM)
            told = True
        time.sleep(_LOOK)
    return code


def _left(run_dir: Path) -> dict[str, Any]:
    """What a piece has left: the step to go on from and the sha256 of the parameters there."""
    path = checkpoint.newest(run_dir, lambda _: None)
    if path is None:
        return {"step": 0}
    learner = checkpoint.load_file(path / "model.pt")["learner"]
    return {"step": checkpoint.verify(path).step, "sha256": digest(learner)}
