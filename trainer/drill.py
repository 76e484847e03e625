"""`python -m trainer drill`: trains for a rehearsal of the way past a time limit.

The first attempt never ends by itself: it waits for the signal. The next one goes a little further than the
checkpoint it found, and is done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer import checkpoint, train
from trainer.settings import read_settings

ENDLESS = 10**12
FURTHER = 2000
"""Environment steps after the checkpoint: enough to learn and to be evaluated, done in seconds."""


def main(argv: Sequence[str]) -> int:
    """Trains as `train` does with the same arguments, but for the number of steps; returns the exit code.

    Raises:
        TrainerError: as `train`.
        RecipeError: the recipe is at fault.
    """
    settings = read_settings(argv, os.environ)
    steps = ENDLESS
    if settings.attempt > 0:
        newest = checkpoint.newest(settings.run_dir, lambda _: None)
        steps = FURTHER + (int(newest.name.removeprefix("step-")) if newest else 0)
    return train.main([*argv, "--total-steps", str(steps)])
