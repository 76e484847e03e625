"""`python -m trainer train`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer.settings import read_each


def main(argv: Sequence[str]) -> int:
    """Trains as the arguments say; returns the exit code.

    Raises:
        TrainerError: the arguments, the checkpoint or a worker are at fault.
        RecipeError: the recipe is.
    """
    settings, *others = runs = read_each(argv, os.environ)
    if others:
        from trainer.together import train_seeds

        return train_seeds(runs)
    if not settings.place.started:
        from trainer.launching import launch

        # the folder may have been named after this very second
        return launch([*argv, "--run-dir", str(settings.run_dir)], settings.place.size)
    if settings.place.size > 1:  # a rank that is gone is told in one line, not in fifty of C++
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from trainer.training import train  # takes seconds to import, which --help and a typing error should not

    return train(settings)
