"""Computes how an on-policy rollout is divided into steps and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.recipe.errors import RecipeError

AUTO = "auto"
_AUTO_MOST = 4096
_AUTO_BATCHES = 4


@dataclass(frozen=True)
class Batches:
    """The division of a rollout.

    Attributes:
        steps: that each environment makes between two phases of learning.
        rollout: transitions of all environments together; at least the recipe's `rollout_size`.
        batch_size: transitions of a gradient step; divides the rollout.
    """

    steps: int
    rollout: int
    batch_size: int

    @property
    def count(self) -> int:
        """Batches of an epoch."""
        return self.rollout // self.batch_size


def batches(name: str, values: Mapping[str, Any], num_envs: int) -> Batches:
    """Divides the rollouts of a recipe.

    Args:
        name: the recipe's.
        values: its values; without a `batch_size` a rollout is one batch.
        num_envs: environments. A rollout they do not divide grows to whole steps, on Meta-World's tasks to
            whole episodes.

    Raises:
        RecipeError: the batch size does not divide the rollout; the nearest that do are named.
    """
    episode = values.get("episode_steps", 1)  # where rollouts are whole episodes
    steps = -(-values["rollout_size"] // (num_envs * episode)) * episode
    rollout = steps * num_envs
    size = values.get("batch_size", rollout)
    if size == AUTO:
        size = max(divisor for divisor in divisors(rollout) if divisor <= _auto_limit(rollout))
    if rollout % size:
        smaller = max(divisor for divisor in divisors(rollout) if divisor < size)
        larger = [divisor for divisor in divisors(rollout) if divisor > size][:1]
        nearest = " or ".join(str(near) for near in (smaller, *larger))
        cut = f"rollout of {steps} steps x {num_envs}" if num_envs > 1 else "rollout_size"
        raise RecipeError(
            f"recipe {name}: batch_size must divide {cut} = {rollout}, and {size} does not: "
            f"take {nearest}, or auto (--set batch_size=... --unlock batch_size)"
        )
    return Batches(steps, rollout, size)


def _auto_limit(rollout: int) -> int:
    """Returns the most that `auto` takes: four batches make an epoch, where there is enough for that."""
    return min(_AUTO_MOST, max(rollout // _AUTO_BATCHES, 1))


def divisors(number: int) -> list[int]:
    """Returns all divisors, from the least."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def multiples_near(number: int, factor: int) -> range:
    """Returns the multiples of a factor from the last up to a number to the first above it; never 0."""
    return range(max(number // factor, 1) * factor, number + factor + 1, factor)
