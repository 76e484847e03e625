"""Sizes of observations and actions, as far as they are known without making the environment.

The table `recipes/benchmarks/gymnasium.toml` has the environments that come with Gymnasium; it is made from
the environments themselves.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainer.recipe.tables import read_table

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


METAWORLD_SPACES = Spaces(observation=39, action=4)
"""Two frames of state and the goal; three axes of the hand and the gripper."""


def alike(name: str) -> list[str]:
    """Returns ids in the table that resemble an unknown one; none for `module:EnvId`."""
    name = name.partition("?")[0]
    return [] if ":" in name else difflib.get_close_matches(name, known_spaces(), n=2, cutoff=_ALIKE)


@cache
def known_spaces() -> dict[str, Spaces]:
    """Returns the sizes in the table, by id."""
    return {name: _spaces(row) for name, row in read_table("benchmarks/gymnasium").items()}


def _spaces(row: dict[str, Any]) -> Spaces:
    choices = tuple(row.get("choices", ()))
    return Spaces(row["observation"], row.get("action", len(choices)), choices)
