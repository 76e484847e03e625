"""A run's recipe: short names of its values for --set and --sweep (`lr`, `task`) and overrides. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clusterkit.config.options import NATIVE
from clusterkit.errors import ConfigError, RecipeLockedError
from trainer import recipe as recipes

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_OF_THE_RUN = {
    "seed": "--seed N",
    "total_steps": "--total-steps N",
    "profile": "--profile NAME",
    "recipe": "a profile with that recipe, or --sweep recipe=NAME",
}
"""Names that a sweep can vary but that are not recipe values, with the option for a single run."""


def load(name: str) -> recipes.Recipe:
    """Loads a recipe by name.

    Raises:
        ConfigError: the recipe does not exist or is invalid.
    """
    try:
        return recipes.load(name)
    except recipes.RecipeError as error:
        raise ConfigError(str(error)) from error


def meant(recipe: recipes.Recipe, name: str) -> list[str]:
    """Returns the recipe values behind a name: itself, `tasks` for `task`, every learning rate for `lr`."""
    if name in recipe.values:
        return [name]
    if name == "task" and "tasks" in recipe.values:
        return ["tasks"]
    if name == "lr":
        return [value for value in recipe.values if value.endswith("learning_rate")]
    return []


def sibling(recipe: recipes.Recipe, task: str) -> recipes.Recipe | None:
    """Returns the recipe whose name and `tasks` differ only in the task; None if there is none."""
    tasks = recipe.values.get("tasks", ())
    if tuple(tasks) == (task,):
        return recipe
    if len(tasks) != 1 or (name := recipe.name.replace(tasks[0].lower(), task.lower())) == recipe.name:
        return None
    if name not in recipes.names():
        return None
    other = recipes.load(name)
    return other if tuple(other.values.get("tasks", ())) == (task,) else None


def resolve(
    name: str, overrides: Mapping[str, str], unlock: Sequence[str]
) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Replaces all short names in a recipe's overrides; returns recipe name, overrides and unlocked names.

    Args:
        name: the recipe's name.
        overrides: values as text, by name; `task` chooses the recipe of that task if one exists.
        unlock: names of values that may change.

    Raises:
        ConfigError: the recipe is unknown, two names change one value, or a name belongs to the run.
    """
    recipe, changed, may_change = load(name), dict(overrides), list(unlock)
    if "task" in changed and (other := sibling(recipe, changed["task"])) is not None:
        recipe = other
        del changed["task"]
        may_change = [each for each in may_change if each != "task"]
    for short in list(changed):
        values = meant(recipe, short)
        if not values and short in _OF_THE_RUN:
            raise ConfigError(f"--set {short}: it is a setting of the run", hint=f"use {_OF_THE_RUN[short]}")
        if not values or values == [short]:
            continue
        if taken := sorted(set(values) & set(changed)):
            raise ConfigError(f"--set {short} and --set {taken[0]} both change {taken[0]}")
        changed |= dict.fromkeys(values, changed.pop(short))
    may_change = [each for short in may_change for each in meant(recipe, short) or [short]]
    return recipe.name, changed, tuple(dict.fromkeys(may_change))


def choose_recipe(name: str, overrides: Mapping[str, str], unlock: Sequence[str]) -> recipes.Recipe:
    """Returns the recipe with its overrides, checked on the laptop before anything is sent.

    Raises:
        RecipeLockedError: an overridden locked value is not named in `unlock`.
        ConfigError: the recipe or a value is unknown or wrong.
    """
    name, overrides, unlock = resolve(name, overrides, unlock)
    locked = load(name)
    try:
        return locked.override(overrides, unlock)
    except recipes.RecipeLocked as error:
        all_rates = "--unlock lr allows all learning rates; " if _sets_all_rates(locked, overrides) else ""
        raise RecipeLockedError(
            str(error), hint=f"{all_rates}the run will be marked as modified permanently"
        ) from error
    except recipes.RecipeError as error:
        raise ConfigError(str(error), hint=f"{name} has {', '.join(sorted(locked.values))}") from error


def _sets_all_rates(recipe: recipes.Recipe, overrides: Mapping[str, str]) -> bool:
    """Whether a user who wrote `lr` is told of the first of several locked values."""
    rates = meant(recipe, "lr")
    return len(rates) > 1 and set(rates) <= overrides.keys()


def check_batches(recipe: recipes.Recipe, num_envs: int | None) -> None:
    """Raises ConfigError if a rollout is not divided by its batches, before its job queues for hours."""
    entry, values = recipe.entry, recipe.values
    try:
        entry.batch_size(recipe.name, values, num_envs or entry.usual_envs(values))
    except recipes.RecipeError as error:
        raise ConfigError(str(error)) from error


def ranks(profile: Profile, recipe: recipes.Recipe) -> list[str]:
    """Returns the trainer's option for one learner process per GPU or node; empty for one.

    Raises:
        ConfigError: the processes cannot share the environments, the batch or the replay buffer; or they need
            several nodes by an option of sbatch.
    """
    if profile.ranks < 2:
        return []
    if profile.native_nodes:
        raise ConfigError(
            f"profile {profile.name} asks for nodes by an {NATIVE} option, which starts no process on them",
            hint="write `nodes = N` in the profile instead",
        )
    try:
        recipes.check_shares(recipe, profile.num_envs, profile.ranks)
    except recipes.RecipeError as error:
        where = f"{profile.ranks} GPUs" if profile.gpu_count else f"{profile.nodes} nodes"
        raise ConfigError(
            f"profile {profile.name}, learnt on {where}: {error}",
            hint="change that, or use another number: `gpus` or `nodes` of the profile, or --ranks of `plan`",
        ) from error
    return ["--ranks", str(profile.ranks)]
