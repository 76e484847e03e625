"""The learner's memory of SAC, by arithmetic alone, for one rank."""

from __future__ import annotations

from trainer.lanes import LaneLayout, Ring
from trainer.placement import acts_on_host
from trainer.recipe.sizes import Sizes

_FLOAT, _LONG, _DOUBLE = 4, 8, 8


def network_bytes(sizes: Sizes) -> int:
    """Parameters of actor, critics and temperatures, and the constants the networks carry."""
    return sizes.count.trained * _FLOAT + _constants(sizes)


def optimizer_bytes(sizes: Sizes) -> int:
    """Adam's state: two numbers a parameter, and a count a tensor."""
    values = sizes.recipe.values
    layers = len(values["actor_hidden"]) + len(_critic_layers(sizes))
    tensors = 2 * (layers + 2) + 1
    return (2 * sizes.count.trained + tensors) * _FLOAT


def index_bytes(layout: LaneLayout | Ring) -> int:
    """What a draw on a device keeps: tasks of each batch, lanes, slots, random numbers."""
    if isinstance(layout, Ring):
        return _DOUBLE + layout.batch_size * (_DOUBLE + _LONG)
    lanes = layout.num_tasks * len(layout.lane_slots)
    whole = layout.rotations * layout.batch_size + 1 + 3 * lanes + lanes * max(layout.lane_slots)
    return (whole + layout.batch_size) * _LONG


def acting_bytes(sizes: Sizes) -> int:
    """What acts on a GPU: the weights in use and the next ones where it lags, inputs and actions.

    Nothing where the policy is so small that the host acts.
    """
    if acts_on_host(sizes.count.actor, sizes.own_environments):
        return 0
    tables = sizes.own_environments * (sizes.spaces.observation + 2 * sizes.spaces.action + 1) * _FLOAT
    if not sizes.lag:
        return tables
    actor = sizes.count.actor + 2 * sizes.spaces.observation
    multi = _heads(sizes)
    return tables + 2 * actor * _FLOAT + sizes.tasks**2 * _FLOAT + multi * _LONG


def workspace_bytes(sizes: Sizes, micro_batches: int = 1) -> int:
    """About what an update takes at its peak: activations, their gradients, and new ones of the critics.

    The policy's activations are kept for the whole batch while the critics go through their parts of it. A
    measurement, tests/trainer/test_memory.py, agrees within a tenth.
    """
    values, count, heads = sizes.recipe.values, sizes.count, _heads(sizes)
    batch = sizes.own_batch
    rows = -(-batch // micro_batches)
    inputs = sizes.spaces.observation + (sizes.tasks if values.get("one_hot") else 0)
    width = 2 if sizes.precision == "bf16" else _FLOAT
    hidden, outputs = _critic_layers(sizes), max(1, int(values.get("value_bins", 0)))
    acting = _last_bytes(values["actor_hidden"][-1], heads * 2 * sizes.spaces.action, width)
    actor: int = 2 * batch * (inputs * _FLOAT + sum(values["actor_hidden"]) * width + acting)
    kept = (2 if values["layer_norm"] else 1) * sum(hidden) + 2 * max(hidden) + inputs + sizes.spaces.action
    critics: int = 2 * rows * (kept * width + _last_bytes(hidden[-1], heads * outputs, width))
    cast: int = (count.actor + count.critics) * width if sizes.precision == "bf16" else 0
    # with parts of a batch: their sum, and that of this one
    gradients = min(micro_batches, 2) * count.critics * _FLOAT
    return actor + critics + cast + gradients


def _last_bytes(before: int, outputs: int, width: int) -> int:
    """What the last layer keeps of a row, in float32: what it gives, and what it is given if that is cast."""
    return outputs * _FLOAT + (0 if width == _FLOAT else before * _FLOAT)


def _critic_layers(sizes: Sizes) -> tuple[int, ...]:
    """Widths of a critic's hidden layers; a residual block has two."""
    hidden: tuple[int, ...] = sizes.recipe.values["critic_hidden"]
    if sizes.recipe.values.get("critic_network") == "residual":
        return (hidden[0], *(width for width in hidden[1:] for _ in range(2)))
    return hidden


def _heads(sizes: Sizes) -> int:
    return sizes.tasks if sizes.recipe.values.get("heads") == "multi-head" else 1


def _constants(sizes: Sizes) -> int:
    """Statistics and one-hot ids of the encoder, ids of the heads, and the learner's own one-hot ids."""
    return (2 * sizes.spaces.observation + 2 * sizes.tasks**2) * _FLOAT + 3 * _heads(sizes) * _LONG
