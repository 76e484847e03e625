"""Makes trainer/recipes/benchmarks/gymnasium.toml: the sizes of the environments that come with Gymnasium.

    python -m docs.tools.environments

Each is made and looked at, as the trainer does. One that cannot be made where this runs keeps the row that
it has, if it has any: Box2D's want a package of their own, and the oldest of MuJoCo's one that is no more.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import gymnasium

from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.errors import UsageError
from trainer.recipe.spaces import Spaces, known_spaces
from trainer.recipe.tables import DIRECTORY

TABLE = DIRECTORY / "benchmarks/gymnasium.toml"
_HEAD = """# How many numbers the environments that come with Gymnasium show and take: `observation` of a
# state, `action` of a box, `choices` of discrete actions, choice by choice. A discrete observation
# counts as one-hot.
#
# Made by `python -m docs.tools.environments` from the environments themselves; a test makes them again.
"""
_NOT_OURS = ("GymV21Environment-v0", "GymV26Environment-v0")
"""Shims around other environments."""


def ids() -> Iterator[str]:
    """The environments that come with Gymnasium, but for the copies of some that want JAX."""
    for name, spec in gymnasium.registry.items():
        if "/" not in name and name not in _NOT_OURS and str(spec.entry_point).startswith("gymnasium."):
            yield name


def looked_at() -> dict[str, Spaces]:
    """The sizes of all that can be made here."""
    found = {}
    for name in ids():
        with warnings.catch_warnings(), contextlib.suppress(UsageError):
            warnings.simplefilter("ignore")  # a newer version exists
            factory = GymnasiumFactory(name, actions="clipped", seed=0)
            space = factory.action_space
            choices = space.nvec if space.kind == "discrete" else ()
            found[name] = Spaces(factory.observation_dim, factory.action_dim, tuple(choices))
    return found


def table(rows: dict[str, Spaces]) -> str:
    """The file."""
    text = [_HEAD]
    for name, spaces in sorted(rows.items()):
        last = f"choices = {list(spaces.choices)}" if spaces.choices else f"action = {spaces.action}"
        text.append(f"\n[{name}]\nobservation = {spaces.observation}\n{last}\n")
    return "".join(text)


def main() -> None:
    """Writes it."""
    kept = known_spaces() if TABLE.exists() else {}
    TABLE.write_text(table({**kept, **looked_at()}), encoding="utf-8")


if __name__ == "__main__":
    main()
