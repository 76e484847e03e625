"""Sends all small arrays of a vector step from the host to a device in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

_ROOM = 16
"""Bytes to whose multiple an array's place is rounded, so that a view of any type begins well."""


class Sender:
    """Sends arrays to a GPU through one pinned buffer, which costs one copy and no allocation.

    Args:
        device: the target; without a GPU each array is copied separately.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._here = torch.zeros(0, dtype=torch.uint8)
        self._there = self._here
        self._sent = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def send(self, arrays: Sequence[npt.NDArray[Any]]) -> list[Tensor]:
        """Returns the arrays on the device, until the next call on the same stream; waits for no copy of it.

        Args:
            arrays: of any types and shapes, contiguous.
        """
        tensors = [torch.from_numpy(array) for array in arrays]
        if self._sent is None:
            return [tensor.to(self._device) for tensor in tensors]
        *begins, end = accumulate((-(-each.nbytes // _ROOM) * _ROOM for each in tensors), initial=0)
        self._sent.synchronize()  # of the last call, long since done
        if end > len(self._here):
            self._here = torch.zeros(end, dtype=torch.uint8, pin_memory=True)
            self._there = torch.zeros(end, dtype=torch.uint8, device=self._device)
        for tensor, begin in zip(tensors, begins, strict=True):
            _part(self._here, begin, tensor).copy_(tensor)
        self._there[:end].copy_(self._here[:end], non_blocking=True)
        self._sent.record(torch.cuda.current_stream(self._device))
        return [_part(self._there, begin, tensor) for tensor, begin in zip(tensors, begins, strict=True)]


def _part(buffer: Tensor, begin: int, like: Tensor) -> Tensor:
    """Returns a part of a buffer of bytes in the type and shape of a tensor."""
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
