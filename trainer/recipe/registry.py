"""Finds the entries of algorithms by their names.

The entry of the algorithm `x` is `ENTRY` of the module `trainer.algorithms.x`, which is imported by that name
when it is asked for: the recipes, which need the standard library alone, know no algorithm, and no list is
changed for a new one. What there is, the schemas say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from trainer.recipe.algorithm import Algorithm
from trainer.recipe.environments import GYMNASIUM, environment_of
from trainer.recipe.errors import RecipeError
from trainer.recipe.tables import DIRECTORY, nearest


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all algorithms, sorted: those that have a schema."""
    return tuple(sorted({path.stem for path in (DIRECTORY / "schemas").rglob("*.toml")}))


def algorithm(name: str) -> Algorithm:
    """Returns the entry of an algorithm.

    Raises:
        RecipeError: there is none of that name.
    """
    if name not in names():
        raise RecipeError(f"unknown algorithm {name!r}{nearest(str(name), names())}")
    entry: Algorithm = import_module(f"trainer.algorithms.{name}").ENTRY
    return entry


def entry_of(recipe: Mapping[str, Any]) -> Algorithm:
    """Returns the algorithm of a recipe as a model has it.

    Args:
        recipe: with `algorithm` and `values`.

    Raises:
        RecipeError: there is no algorithm of that name.
    """
    return algorithm(recipe["algorithm"]).on(environment_of(recipe["values"]))


def unlearnable(entry: Algorithm, environment: str, choices: Sequence[int]) -> str:
    """Returns why an algorithm cannot learn an environment; empty if it can.

    Args:
        entry: the algorithm.
        environment: its name.
        choices: how many options each of its discrete actions has; none of a Box.
    """
    if entry.learns(choices):
        return ""
    kind = "discrete actions" if choices else "continuous actions"
    if entry.discrete and choices:
        kind = "several discrete actions at once"
    return f"{environment} has {kind}, which {entry.label} cannot learn"


def learners(choices: Sequence[int]) -> list[str]:
    """Returns what people call the algorithms that can learn an environment with such actions."""
    entries = map(algorithm, names())
    return [entry.label for entry in entries if GYMNASIUM in entry.environments and entry.learns(choices)]
