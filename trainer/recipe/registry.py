"""Finds the entries of algorithms by their names.

The entry of the algorithm `x` is `ENTRY` of the module `trainer.algorithms.x`, which is imported by that name
when it is asked for: the recipes, which need the standard library alone, know no algorithm, and no list is
changed for a new one. What there is, the schemas say.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from trainer.recipe.algorithm import Algorithm
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
