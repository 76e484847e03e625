"""Keeps room round every tensor, which nothing may write to, and whose numbers are none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_RIM = 64
"""Numbers before and behind a tensor; a multiple of what packs are aligned to."""


class Redzones(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every tensor made within this context has a room of its own, and is full of NaN until it is written."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rooms: list[Tensor] = []

    def check(self) -> None:
        """Fails if something was written beside a tensor."""
        for room in self._rooms:
            rims = torch.cat([room[:_RIM], room[-_RIM:]]).view(torch.uint8)
            assert rims.eq(255).all(), f"written beside a tensor of {room.numel() - 2 * _RIM} numbers"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_place(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        empty = "empty" in func.__name__

        def moved(tensor: Tensor) -> Tensor:
            return tensor if _place(tensor) in given else self._roomy(tensor, empty)

        return tree_map_only(Tensor, moved, result)

    def _roomy(self, tensor: Tensor, empty: bool) -> Tensor:
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        room = torch.empty(span + 2 * _RIM, dtype=tensor.dtype)
        room.view(torch.uint8).fill_(255)
        self._rooms.append(room)
        own = room.as_strided(tensor.shape, tensor.stride(), _RIM)
        return own if empty else own.copy_(tensor)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
