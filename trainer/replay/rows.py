"""A batch of transitions, and the rows of a replay as stored in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True)
class ReplayRows:
    """Rows of all lanes, lane after lane; they are counted from the start of the run.

    Attributes:
        begin: the first row of each lane.
        end: the row after the last of each lane.
        data: float32, contiguous, shape (sum of end - begin, row_width).
    """

    begin: list[int]
    end: list[int]
    data: npt.NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.data.nbytes

    def lanes(self) -> Iterator[tuple[int, int, npt.NDArray[np.float32]]]:
        """Yields each lane's first row, the row after its last, and its data."""
        offset = 0
        for begin, end in zip(self.begin, self.end, strict=True):
            yield begin, end, self.data[offset : offset + end - begin]
            offset += end - begin


class Batch(NamedTuple):
    """Transitions to learn from.

    Attributes:
        observation: (batch, observation_dim).
        action: (batch, action_dim).
        reward: (batch,).
        next_observation: (batch, observation_dim).
        task: int64 (batch,).
        goes_on: float (batch,), 0 where the environment terminated the episode and nothing follows, else 1;
            None if none is terminated: Meta-World's episodes are only cut off and bootstrapped.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    task: Tensor
    goes_on: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that are there, in order: `Batch(*tensors)` is the batch again."""
        return tuple(tensor for tensor in self if tensor is not None)
