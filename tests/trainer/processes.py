"""Trainer commands as processes: started, waited for and looked at from outside."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests import forked, waiting

SMALL = [
    *("--set", "actor_hidden=8", "--unlock", "actor_hidden", "--set", "critic_hidden=8"),
    *("--unlock", "critic_hidden", "--set", "batch_size=16", "--unlock", "batch_size"),
    *("--set", "env_steps_per_update=20", "--unlock", "env_steps_per_update"),
]
"""A learner that costs next to nothing, for what is not about learning."""


def start(run_dir: Path, *argv: str, attempt: int = 0) -> forked.Process:
    """Starts an attempt of a run, in a session of its own."""
    own = {"CLUSTERKIT_RUN_DIR": str(run_dir), "CLUSTERKIT_ATTEMPT": str(attempt)}
    return forked.start(argv, env={**os.environ, **own})


def finish(process: forked.Process) -> str:
    """All it has written, when it has ended."""
    return process.communicate(timeout=600)[0]


def until(process: forked.Process, condition: Callable[[], bool]) -> None:
    """Waits for something that the process does while it runs."""

    def holds() -> bool:
        assert process.poll() is None, finish(process)
        return condition()

    waiting.until(holds)


def step_of(run_dir: Path) -> int:
    """Of the heartbeat."""
    try:
        return json.loads((run_dir / "heartbeat.json").read_text())["step"]
    except FileNotFoundError:
        return 0


def checkpoints(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "checkpoints").glob("step-*"))
