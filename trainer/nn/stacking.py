"""Several networks of one shape as one: their tensors lie stacked, and each goes on as a view of its part.

On policy, whatever reads parameters and statistics of a shape (...) reads (networks, ...) as well. Off policy
the members of an `EnsembleMLP` are stacked already, and those of several networks lie side by side.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)

_ROOM = 16
"""Numbers to whose multiple a part is padded: 64 bytes of float32, where new tensors begin too."""


def empty_stack(count: int, shape: Sequence[int], like: Tensor) -> Tensor:
    """Returns a new tensor (count, *shape) whose parts begin where new tensors would.

    What oneMKL computes may differ in its last bits with where its operands begin.
    """
    size = torch.Size(shape).numel()
    room = -(-size // _ROOM) * _ROOM
    return like.new_empty(count, room)[:, :size].view(count, *shape)


def aligned(whole: Tensor) -> Tensor:
    """Returns a stack whose parts begin where new tensors would, strides kept: this one if it is so."""
    if whole.stride(0) % _ROOM == 0:
        return whole
    shape, strides = whole.shape[1:], whole.stride()[1:]
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    parts = empty_stack(len(whole), (span,), whole)
    return parts.as_strided(whole.shape, (parts.stride(0), *strides)).copy_(whole)


@torch.no_grad()
def stack(tensors: Sequence[Tensor], *, dense: bool = False) -> Tensor:
    """Moves tensors of one shape into one new tensor (len(tensors), ...), and returns it.

    They stay the objects they were, and are its parts from then on.

    Args:
        tensors: to move.
        dense: without room between the parts, so that their first dimension can be joined with the next one.
    """
    first, count = tensors[0], len(tensors)
    whole = first.new_empty(count, *first.shape) if dense else empty_stack(count, first.shape, first)
    for own, tensor in zip(whole.unbind(), tensors, strict=True):
        own.copy_(tensor)
        tensor.data = own
    return whole


def part(tensors: Sequence[Tensor]) -> None:
    """Gives each of these tensors memory of its own again."""
    for tensor in tensors:
        tensor.data = tensor.detach().clone()


def alone(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a state to be stored: without what its tensors lie beside, which would be stored with them."""
    return {
        name: tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
        for name, tensor in state.items()
    }


def stacked(networks: Sequence[Network]) -> Network:
    """Returns a network that computes all of these at once, the seeds being the first dimension of its rows.

    The parameters and statistics of these networks become parts of its own. What is learnt by either is
    learnt by both; the others stay of use one by one.

    Args:
        networks: of the same shape, made of `EnsembleMLP` and `ObservationEncoder`.
    """
    whole = copy.deepcopy(networks[0])
    own = _tensors(whole)
    tensors_of_all = [_tensors(network) for network in networks]
    for name in networks[0].state_dict():
        held = stack([tensors[name] for tensors in tensors_of_all], dense=True)
        # the members of all seeds side by side; statistics (observation_dim,) beside the rows of a batch
        own[name].data = held.flatten(0, 1) if held.dim() > 2 else held[:, None]
    return whole


def place(parameters: Sequence[Tensor], flat: Tensor) -> None:
    """Makes parameters the parts of a tensor (size,), or of as many as are stacked in (count, size)."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, own in zip(parameters, torch.split(flat, sizes, -1), strict=True):
        parameter.data = own.view((*flat.shape[:-1], *parameter.shape))


def beside(statistic: Tensor, rows: Tensor) -> Tensor:
    """Returns (size,), or (networks, size), in a shape that broadcasts with rows (networks, ..., size)."""
    if statistic.dim() == 1:
        return statistic
    between = [1] * (rows.dim() - statistic.dim())
    return statistic.view(len(statistic), *between, -1)


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}
