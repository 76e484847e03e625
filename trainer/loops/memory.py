"""Which replay a run fills, and the error of a device that is too small for the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from trainer.algorithms.kernels.choice import sampler_on
from trainer.envs.interface import EnvFactory
from trainer.errors import TrainerError
from trainer.replay import NStepReplay, Replay, TransitionReplay
from trainer.settings import TrainSettings

Floats = npt.NDArray[np.float32]
AnyReplay = Replay | TransitionReplay


def make_replay(
    settings: TrainSettings,
    factory: EnvFactory,
    device: torch.device,
    say: Callable[[str], None],
    *,
    on_host: bool,
) -> AnyReplay:
    """Makes this rank's part of a run's replay.

    It has rings of whole episodes where these are planned, of whole transitions elsewhere; of several steps
    each, if the recipe wants that.

    Args:
        settings: what to do.
        factory: tells the sizes.
        device: where batches are wanted.
        say: told what draws them, where there is a choice.
        on_host: keep the rows of a GPU's replay in the host's memory.
    """
    values, rank = settings.recipe.values, settings.place.rank
    sizes = settings.own(values["replay_capacity"]), settings.own(values["batch_size"])
    widths = factory.observation_dim, factory.action_dim
    if factory.episode_steps is None and (steps := values.get("n_step", 1)) > 1:
        sums = {"steps": steps, "gamma": values["gamma"], "num_envs": settings.own_envs}
        return NStepReplay(*sizes, *widths, device, on_host=on_host, **sums)
    if factory.episode_steps is None:
        return TransitionReplay(*sizes, *widths, device, on_host=on_host)
    tasks, steps = len(settings.tasks), factory.episode_steps
    sampler, remark = (None, "") if on_host else sampler_on(device)
    if remark:
        say(remark)
    layout = tasks, settings.own_envs, *sizes, steps, *widths
    return Replay(*layout, device, on_host=on_host, turn=rank, sampler=sampler)


def too_small(fault: Exception) -> TrainerError:
    """Returns the error of a device whose memory does not hold the run."""
    return TrainerError(
        f"the device's memory is too small for this recipe: {str(fault).splitlines()[0]}",
        hint="request a larger GPU, or free memory on one that others also use",
    )
