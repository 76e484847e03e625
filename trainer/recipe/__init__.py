"""Recipes: named, locked sets of algorithm hyperparameters, and the memory they need.

Standard library only, and free of the rest of the trainer: the laptop imports it to check a run before it is
sent anywhere.
"""

from trainer.recipe.batches import ON_POLICY_ENVS, Batches, batches, usual_envs
from trainer.recipe.errors import RecipeError, RecipeLocked
from trainer.recipe.footprint import (
    ACTION_SIZE,
    OBSERVATION_SIZE,
    ParameterCount,
    parameter_count,
    replay_bytes,
)
from trainer.recipe.kinds import FIXED_GOALS, goal_seed, on_metaworld, on_policy
from trainer.recipe.recipe import (
    Recipe,
    completed,
    load,
    names,
    parse,
)
from trainer.recipe.shares import check_shares, shared_envs
from trainer.recipe.tables import task_names

__all__ = [
    "ACTION_SIZE",
    "FIXED_GOALS",
    "OBSERVATION_SIZE",
    "ON_POLICY_ENVS",
    "Batches",
    "ParameterCount",
    "Recipe",
    "RecipeError",
    "RecipeLocked",
    "batches",
    "check_shares",
    "completed",
    "goal_seed",
    "load",
    "names",
    "on_metaworld",
    "on_policy",
    "parameter_count",
    "parse",
    "replay_bytes",
    "shared_envs",
    "task_names",
    "usual_envs",
]
