"""Sends batches of a replay on the host to the device."""

from __future__ import annotations

import torch
from torch import Tensor


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
