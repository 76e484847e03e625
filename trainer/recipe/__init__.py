"""Recipes: named, locked sets of algorithm hyperparameters, and the memory they need.

Standard library only, and free of the rest of the trainer: the laptop imports it to check a run before it is
sent anywhere.
"""

from trainer.recipe.batches import Batches, batches
from trainer.recipe.environments import FIXED_GOALS, goal_seed
from trainer.recipe.errors import RecipeError, RecipeLocked
from trainer.recipe.recipe import Recipe, completed, load, names, parse
from trainer.recipe.sizes import check_shares, shared_envs
from trainer.recipe.tables import task_names

__all__ = [
    "FIXED_GOALS",
    "Batches",
    "Recipe",
    "RecipeError",
    "RecipeLocked",
    "batches",
    "check_shares",
    "completed",
    "goal_seed",
    "load",
    "names",
    "parse",
    "shared_envs",
    "task_names",
]
