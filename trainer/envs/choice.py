"""Chooses the environments that a recipe asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.envs.interface import EnvFactory
from trainer.errors import UsageError
from trainer.recipe.kinds import FIXED_GOALS, on_metaworld, on_policy


def factory_for(
    values: Mapping[str, Any], tasks: Sequence[str], seed: int = 0, goals: int = FIXED_GOALS
) -> EnvFactory:
    """Returns the factory of a recipe's environments.

    Args:
        values: of the recipe. SAC learns actions in [-1, 1], recipes with rollouts learn them as they are.
        tasks: full names of Meta-World's tasks.
        seed: of the episodes that a Gymnasium environment starts.
        goals: seed of the goal lists of Meta-World's tasks.

    Raises:
        UsageError: the environment is unknown, cannot be made here, or has spaces of another kind.
    """
    if on_metaworld(values):
        from trainer.envs.metaworld import MetaworldFactory  # brings MuJoCo and SciPy, 30 MB

        return MetaworldFactory(tuple(tasks), goals, values["goals_per_task"], values["episode_steps"])
    from trainer.envs.gymnasium_env import GymnasiumFactory

    name = values["environment"]
    if on_policy(values):
        return GymnasiumFactory(name, actions="clipped", seed=seed)
    factory = GymnasiumFactory(name, actions="scaled", seed=seed)
    if factory.action_space.kind == "discrete":
        raise UsageError(
            f"{name} has discrete actions, which SAC cannot learn", hint="train it with a PPO or A2C recipe"
        )
    return factory
