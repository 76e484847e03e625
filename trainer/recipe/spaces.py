"""Sizes of observations and actions, as far as they are known without making the environment.

The table `recipes/benchmarks/gymnasium.toml` has the environments that come with Gymnasium; it is made from
the environments themselves.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainer.recipe.footprint import ACTION_SIZE, OBSERVATION_SIZE
from trainer.recipe.kinds import on_metaworld
from trainer.recipe.recipe import Recipe

TABLE = Path(__file__).resolve().parent.parent / "recipes" / "benchmarks" / "gymnasium.toml"
_ALIKE = 0.75
"""Of difflib's ratio: HalfCheeta-v5 is like HalfCheetah-v5 (0.96), not like Reacher-v5 (0.52)."""


@dataclass(frozen=True)
class Spaces:
    """The sizes of an environment.

    Attributes:
        observation: numbers in an observation, flat.
        action: numbers in an action; one for each choice.
        choices: how many there are to choose from, choice by choice; none where an action is a box.
    """

    observation: int
    action: int
    choices: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        """Numbers that a policy's network gives: the logits of all choices, or the means."""
        return sum(self.choices) or self.action


METAWORLD = Spaces(OBSERVATION_SIZE, ACTION_SIZE)


def spaces_of(recipe: Recipe) -> Spaces | None:
    """Returns the sizes of what a recipe runs on; None for an environment that only its module knows."""
    if on_metaworld(recipe.values):
        return METAWORLD
    return known_spaces().get(recipe.values["environment"])


def alike(name: str) -> list[str]:
    """Returns ids in the table that resemble an unknown one; none for `module:EnvId`."""
    return [] if ":" in name else difflib.get_close_matches(name, known_spaces(), n=2, cutoff=_ALIKE)


@cache
def known_spaces() -> dict[str, Spaces]:
    """Returns the sizes in the table, by id."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: _spaces(row) for name, row in rows.items()}


def _spaces(row: dict[str, Any]) -> Spaces:
    choices = tuple(row.get("choices", ()))
    return Spaces(row["observation"], row.get("action", len(choices)), choices)
