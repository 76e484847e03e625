"""The plan of a run's training episodes, unless its environments end them themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Autoreset, Schedule
from trainer.parallel import Ranks
from trainer.settings import TrainSettings


def plan_episodes(
    settings: TrainSettings,
    factory: EnvFactory,
    ranks: Ranks,
    rng: np.random.Generator,
    begun: int,
    state: Mapping[str, Any] | None,
) -> Schedule | Autoreset:
    """Plans the episodes of this rank's environments, or goes on where a plan was.

    Args:
        settings: of the run.
        factory: makes the environments.
        ranks: with whom this process learns.
        rng: the generator of the goals.
        begun: environment steps that the run has made.
        state: of the plan to go on with, or None.
    """
    values, num_envs, tasks = settings.recipe.values, settings.own_envs, len(settings.tasks)
    if factory.episode_steps is None:
        return Autoreset(num_envs, begun + ranks.rank * num_envs)
    turn = ranks.rank * (num_envs % tasks)  # the environments left over on all ranks take the tasks in turn
    return Schedule(
        num_envs,
        tasks,
        factory.episode_steps,
        values["goals_per_task"],
        rng,
        stagger=values.get("stagger_episodes", False),
        turn=turn,
        state=state,
    )
