"""Small arrays on their way from the host to a device: all of a vector step in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

_ROOM = 16
"""Bytes to whose multiple an array's place is rounded, so that a view of any type begins well."""


class Sender:
    """Sends arrays to a GPU through one pinned buffer, which costs one copy and no allocation.

    Args:
        device: where to; one that is no GPU gets each array by itself.
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
        if self._sent is None:
            return [torch.from_numpy(array).to(self._device) for array in arrays]
        ends: list[int] = []
        for array in arrays:
            ends.append((ends[-1] if ends else 0) + -(-array.nbytes // _ROOM) * _ROOM)
        self._sent.synchronize()  # of the last call, long since done
        if ends[-1] > len(self._here):
            self._here = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=True)
            self._there = torch.zeros(ends[-1], dtype=torch.uint8, device=self._device)
        begins = [0, *ends[:-1]]
        for array, begin in zip(arrays, begins, strict=True):
            tensor = torch.from_numpy(array)
            _part(self._here, begin, tensor).copy_(tensor)
        self._there[: ends[-1]].copy_(self._here[: ends[-1]], non_blocking=True)
        self._sent.record(torch.cuda.current_stream(self._device))
        return [
            _part(self._there, begin, torch.from_numpy(array))
            for array, begin in zip(arrays, begins, strict=True)
        ]


def _part(buffer: Tensor, begin: int, like: Tensor) -> Tensor:
    """Returns a part of a buffer of bytes in the type and shape of a tensor."""
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
