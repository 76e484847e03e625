"""The learner's memory of PPO and A2C, by arithmetic alone, for one rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trainer.recipe.sizes import Sizes

_FLOAT, _LONG, _DOUBLE = 4, 8, 8
_SCALARS = 4
"""Numbers of a row after features and action: log-density, value, advantage, target."""
_REWARD_MOMENTS, _SKIPPED = 3 * _DOUBLE, 2 * _LONG
_FLAGS = 3 * _FLOAT
"""The learning rate, the weight of the entropy, and whether to stop."""


def network_bytes(sizes: Sizes) -> int:
    """Parameters, and the constants and statistics that the networks and their learner carry."""
    spaces = sizes.spaces
    constants = sum(spaces.choices) * _LONG + _REWARD_MOMENTS + _SKIPPED + _FLAGS
    if sizes.recipe.values["normalize_observations"]:
        constants += (1 + 2 * spaces.observation) * _DOUBLE
    return (sizes.count.trained + sizes.own_environments) * _FLOAT + constants


def optimizer_bytes(sizes: Sizes) -> int:
    """Adam's two numbers a parameter and its count, or RMSprop's one."""
    if _rmsprop(sizes):
        return sizes.count.trained * _FLOAT
    return (2 * sizes.count.trained + 1) * _FLOAT


def gradient_bytes(sizes: Sizes) -> int:
    """What stays of an update's gradient: Adam keeps the last one."""
    return 0 if _rmsprop(sizes) else sizes.count.trained * _FLOAT


def rollout_bytes(sizes: Sizes) -> int:
    """What was shown before and after each action, actions, rewards and both kinds of ends.

    Of PPO on Meta-World's tasks, too. A GPU's host has as much again, pinned.
    """
    return transitions(sizes) * (2 * shown(sizes) + sizes.spaces.action + 3) * _FLOAT


def rows_bytes(sizes: Sizes) -> int:
    """The transitions as they are learnt from; a GPU has them twice, as its graph gives them and as kept."""
    return transitions(sizes) * row(sizes) * _FLOAT * (2 if sizes.on_gpu else 1)


def estimate_bytes(sizes: Sizes) -> int:
    """About what looking at a whole rollout takes at its peak: the values of all states at once."""
    spaces, count, width = sizes.spaces, transitions(sizes), _width(sizes)
    seen = 2 * count * spaces.observation * _FLOAT
    standardised = seen if sizes.recipe.values["normalize_observations"] else 0
    inputs = 2 * count * spaces.observation * width if width != _FLOAT else 0
    layers = [0, *_hidden(sizes)]  # the input is counted already
    # a layer's input and what it gives, over which the activation is written
    between = max(before + after for before, after in pairwise(layers)) * width
    # the last layer is given float32
    networks = 2 * count * (between if width == _FLOAT else max(between, layers[-1] * (width + _FLOAT)))
    weights = max(sizes.count.actor, sizes.count.critics) * width if width != _FLOAT else 0
    joined = count * (row(sizes) + _SCALARS + 2 + 2 * spaces.outputs) * _FLOAT
    return seen + max(2 * standardised, standardised + max(inputs + networks + weights, joined))


def update_bytes(sizes: Sizes) -> int:
    """About what a gradient step takes at its peak; the activations of both networks are kept all along."""
    spaces, rows, width = sizes.spaces, sizes.own_batch, _width(sizes)
    trained, actor = sizes.count.trained * _FLOAT, sizes.count.actor * _FLOAT
    hidden = _hidden(sizes)
    drawn = rows * row(sizes) * _FLOAT if sizes.cuts.count > 1 else 0
    cast = 0 if width == _FLOAT else sizes.count.trained * width + rows * spaces.observation * width
    losses = rows * (6 + 2 * spaces.outputs) * _FLOAT
    kept = rows * (2 * sum(hidden) * width + (spaces.outputs + 1) * _FLOAT)
    policy = _backward((spaces.observation, *hidden, spaces.outputs), rows, width)
    critic = actor + _backward((spaces.observation, *hidden, 1), rows, width)
    # all gradients apart and as one; RMSprop works with copies
    stepping = 2 * trained + (6 * trained if _rmsprop(sizes) else 0)
    return drawn + losses + kept + max(cast, policy, critic, stepping)


def transitions(sizes: Sizes) -> int:
    """Transitions of a rank's rollout."""
    return sizes.cuts.rollout // sizes.ranks


def shown(sizes: Sizes) -> int:
    """Numbers that a policy is shown: the observation, on Meta-World with the task's one-hot id."""
    return sizes.spaces.observation + (sizes.tasks if sizes.on_metaworld else 0)


def row(sizes: Sizes) -> int:
    """Numbers of a transition as it is learnt from."""
    return shown(sizes) + sizes.spaces.action + _SCALARS


def _backward(layers: Sequence[int], rows: int, width: int) -> int:
    """The most bytes of slopes and gradients at once on the way back through a network."""
    gradients, peaks = 0, [0]
    for number in range(len(layers) - 2, -1, -1):
        before, after = layers[number : number + 2]
        weights = before * after
        gradients += (weights + after) * _FLOAT
        # in lower precision a gradient lies there as it was computed, too, and so do rows and weights
        cast = weights * width + (0 if number else rows * before * width) if width != _FLOAT else 0
        slopes = (max(after + before, 2 * before) if number else after) * width
        if width != _FLOAT and number == len(layers) - 2:  # the last layer, which is computed in float32
            cast, slopes = rows * before * _FLOAT, (after + before) * _FLOAT + before * width
        peaks.append(rows * slopes + gradients + cast)
    return max(peaks)


def _hidden(sizes: Sizes) -> tuple[int, ...]:
    widths: tuple[int, ...] = sizes.recipe.values["hidden"]
    return widths


def _width(sizes: Sizes) -> int:
    return 2 if sizes.precision == "bf16" else _FLOAT


def _rmsprop(sizes: Sizes) -> bool:
    return sizes.recipe.values.get("optimizer") == "rmsprop"
