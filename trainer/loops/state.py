"""Where a run is, beside its networks and its replay: counters and random generators, and its writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.checkpoint import Checkpoints
from trainer.telemetry import Telemetry


@dataclass
class Progress:
    """The counters of a run.

    Attributes:
        learning_starts: environment steps from which the learner may learn.
        step: environment steps so far.
        updates: updates so far.
        credit: environment steps not yet turned into updates, see `UpdateCredit`.
        normalized: whether the observation statistics are settled.
    """

    learning_starts: int
    step: int = 0
    updates: int = 0
    credit: float = 0.0
    normalized: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Returns the counters as plain values."""
        return asdict(self)


def stored_generators(rng: np.random.Generator) -> dict[str, Any]:
    """Returns the state of the run's generator and of PyTorch's, as tensors and text."""
    return {
        "numpy": json.dumps(rng.bit_generator.state),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_generators(stored: dict[str, Any], rng: np.random.Generator) -> None:
    """Sets the generators to what `stored_generators` returned; those of absent GPUs are passed over."""
    rng.bit_generator.state = json.loads(stored["numpy"])
    torch.set_rng_state(stored["torch"])
    if torch.cuda.is_available() and len(stored["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(stored["cuda"])


def write_checkpoint(
    store: Checkpoints, telemetry: Telemetry, run_dir: Path, step: int, parts: Mapping[str, Any]
) -> None:
    """Writes a checkpoint and records it. One that cannot be written is reported, and training goes on."""
    try:
        saved = store.save(step, parts, None)
    except OSError as error:
        telemetry.event(step, f"no checkpoint at step {step}: {error}; training goes on")
        return
    telemetry.checkpoint(step, saved.path.relative_to(run_dir), saved.nbytes, saved.seconds)
