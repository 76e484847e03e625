"""The learner's memory of PPO on Meta-World's tasks, part by part, for one rank.

Rollouts and the rows kept from them are counted to the byte; temporary memory is estimated.
"""

from __future__ import annotations

from itertools import pairwise

from trainer.recipe.on_policy_memory import row, shown, transitions
from trainer.recipe.sizes import Sizes

_FLOAT, _LONG, _DOUBLE = 4, 8, 8


def network_bytes(sizes: Sizes) -> int:
    """The policy's parameters, which are their gradient's size too."""
    return sizes.count.trained * _FLOAT


def optimizer_bytes(sizes: Sizes) -> int:
    """Adam's state: two numbers a parameter, all of which are one tensor, and a count."""
    return 2 * network_bytes(sizes) + _FLOAT


def rows_bytes(sizes: Sizes) -> int:
    """A rollout as it is learnt from, and the indices of one batch of it."""
    return transitions(sizes) * row(sizes) * _FLOAT + sizes.own_batch * _LONG


def work_bytes(sizes: Sizes) -> int:
    """About what is in use at the peak: when a whole rollout is looked at, or in an update.

    Of a whole rollout a layer's inputs and results are kept at a time, or what the fit takes in float64; of a
    batch all layers, and the slopes on both sides of one. A measurement, tests/trainer/test_memory.py, agrees
    within a tenth.
    """
    hidden, observation = sizes.recipe.values["hidden"], sizes.spaces.observation
    inputs, outputs = shown(sizes), 2 * sizes.spaces.action
    layer = max(before + after for before, after in pairwise((inputs, *hidden)))
    fit = 2 * (2 * observation + 4) + observation
    looked_at: int = transitions(sizes) * max(layer * _FLOAT, fit * _DOUBLE)
    kept = 6 * outputs + sum(hidden) + 2 * max(hidden) + (inputs if sizes.cuts.count > 1 else 0)
    update: int = sizes.own_batch * kept * _FLOAT + network_bytes(sizes)
    return max(looked_at, update)
