"""A batch of transitions."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


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
