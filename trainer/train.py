"""`python -m trainer train`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer.settings import read_settings


def main(argv: Sequence[str]) -> int:
    """Trains as the arguments say; returns the exit code.

    Raises:
        TrainerError: the arguments, the checkpoint or a worker are at fault.
        RecipeError: the recipe is.
    """
    settings = read_settings(argv, os.environ)
    from trainer.training import train  # takes seconds to import, which --help and a typing error should not

    return train(settings)
