"""`python -m trainer train`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from trainer.seeds.pack import PackedRun, pack_from, train_in_pack
from trainer.settings import TrainSettings, read_each


def main(argv: Sequence[str]) -> int:
    """Trains as the arguments say; returns the exit code.

    Raises:
        TrainerError: the arguments, the checkpoint or a worker are at fault.
        RecipeError: the recipe is.
    """
    settings, *others = runs = read_each(argv, os.environ)
    if others:
        from trainer.seeds.together import train_seeds

        return train_seeds(runs)
    pack = pack_from(os.environ)
    if pack is not None and settings.place.size == 1:
        return train_in_pack(pack, settings, argv, os.environ, _alone, _together)
    if not settings.place.started:
        from trainer.ranks.launching import launch

        # the folder may have been named after this very second
        return launch([*argv, "--run-dir", str(settings.run_dir)], settings.place)
    if settings.place.size > 1:  # a rank that is gone is told in one line, not in fifty of C++
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return _alone(settings)


def _alone(settings: TrainSettings) -> int:
    from trainer.loops.training import (
        train,  # takes seconds to import, which --help and a typing error should not
    )

    return train(settings)


def _together(runs: Sequence[PackedRun]) -> list[int]:
    from trainer.seeds.together import Member, train_together
    from trainer.telemetry import open_progress

    def member(run: PackedRun) -> Member:
        return Member(run.settings, run.stop, partial(open_progress, stream=run.output), run.ended)

    return train_together([member(run) for run in runs])
