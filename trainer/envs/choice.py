"""Chooses the environments that a recipe asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.envs.interface import EnvFactory
from trainer.errors import UsageError
from trainer.recipe import registry
from trainer.recipe.algorithm import Algorithm
from trainer.recipe.environments import FIXED_GOALS, METAWORLD, environment_of


def factory_for(
    entry: Algorithm,
    values: Mapping[str, Any],
    tasks: Sequence[str],
    seed: int = 0,
    goals: int = FIXED_GOALS,
) -> EnvFactory:
    """Returns the factory of a recipe's environments.

    Args:
        entry: of the algorithm, which says how it learns actions.
        values: of the recipe.
        tasks: full names of Meta-World's tasks.
        seed: of the episodes that a Gymnasium environment starts.
        goals: seed of the goal lists of Meta-World's tasks.

    Raises:
        UsageError: the environment is unknown, cannot be made here, or has spaces that
            the algorithm cannot learn.
    """
    if environment_of(values) is METAWORLD:
        from trainer.envs.metaworld import MetaworldFactory  # brings MuJoCo and SciPy, 30 MB

        return MetaworldFactory(tuple(tasks), goals, values["goals_per_task"], values["episode_steps"])
    from trainer.envs.gymnasium_env import GymnasiumFactory

    name = values["environment"]
    factory = GymnasiumFactory(name, actions=entry.box or "clipped", seed=seed)
    choices = factory.action_space.nvec
    if reason := registry.unlearnable(entry, name, choices):
        others = " or ".join(registry.learners(choices))
        raise UsageError(reason, hint=f"train it with a recipe of {others}")
    return factory
