"""Brings rows and batches of a replay from the host's memory to a device, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ROOM = 16
"""Bytes to whose multiple an array's place is rounded, so that a view of any type begins well."""
_ROWS = 65_536
"""Rows that are read from a device at once, some ten megabytes."""


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
        *begins, end = accumulate((-(-tensor.nbytes // _ROOM) * _ROOM for tensor in tensors), initial=0)
        self._sent.synchronize()  # of the last call, long since done
        if end > len(self._here):
            self._here = torch.zeros(end, dtype=torch.uint8, pin_memory=True)
            self._there = torch.zeros(end, dtype=torch.uint8, device=self._device)
        for tensor, begin in zip(tensors, begins, strict=True):
            _part(self._here, begin, tensor).copy_(tensor)
        self._there[:end].copy_(self._here[:end], non_blocking=True)
        self._sent.record(torch.cuda.current_stream(self._device))
        return [_part(self._there, begin, tensor) for tensor, begin in zip(tensors, begins, strict=True)]


class Staging:
    """Brings a batch gathered in pinned memory to the device, into tensors that stay the same.

    Args:
        gathered: pinned, shape (batch, width).
        device: where to.
    """

    def __init__(self, gathered: Tensor, device: torch.device) -> None:
        self._gathered = gathered
        self.window = torch.empty_like(gathered, device=device)
        self._task = torch.zeros(len(gathered), dtype=torch.int64, device=device)
        self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.window.nbytes + self._task.nbytes

    def wait(self) -> None:
        """Waits until the last batch has left the pinned memory; not for what is done with it."""
        self._sent.synchronize()

    def send(self, task: Tensor) -> Tensor:
        """Sends what was gathered; returns the tasks on the device."""
        self.window.copy_(self._gathered, non_blocking=True)
        self._task.copy_(task, non_blocking=True)
        self._sent.record()
        return self._task


def to_host(rows: Tensor, place: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Returns rows (places, width) of a replay in the host's memory.

    They come in blocks: a device that is full has no room for a copy of all of them.
    """
    fetched = np.empty((len(place), rows.shape[1]), np.float32)
    for begin in range(0, len(place), _ROWS):
        part = slice(begin, begin + _ROWS)
        fetched[part] = rows.index_select(0, to_device(place[part], rows.device)).cpu().numpy()
    return fetched


def put_rows(rows: Tensor, place: npt.NDArray[np.int64], data: npt.NDArray[np.float32]) -> None:
    """Writes rows (places, width) into a replay, wherever it lies."""
    device = rows.device
    if device.type == "cpu":
        rows.numpy()[place] = data
    else:
        rows.index_copy_(0, to_device(place, device), to_device(data, device))


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Returns the array as a tensor on the device; the copy is awaited by the device, not by the host."""
    tensor = torch.from_numpy(array)
    # torch keeps the pinned block from being used again before the copy has been made
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _part(buffer: Tensor, begin: int, like: Tensor) -> Tensor:
    """Returns a part of a buffer of bytes in the type and shape of a tensor."""
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
