"""Our trainer as benchmarks of what it learns run it: to the end, or not at all."""

from __future__ import annotations

import contextlib
import io

from trainer.checkpoint.model import load_model
from trainer.loops import training
from trainer.nn.actor import Actor
from trainer.settings import TrainSettings


def trained(settings: TrainSettings) -> Actor:
    """Trains without a word; returns the final policy.

    Raises:
        SystemExit: a signal stopped it, with the run's exit code. What it had learnt by then is a policy too,
            whose return would pass for that of all steps.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        code = training.train(settings)
    if code:
        raise SystemExit(code)
    return load_model(settings.run_dir).policy
