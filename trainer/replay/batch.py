"""What a learner is given to learn from."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Transitions to learn from; none is terminal, for the tasks only truncate and are bootstrapped.

    Attributes:
        observation: (batch, observation_dim).
        action: (batch, action_dim).
        reward: (batch,).
        next_observation: (batch, observation_dim).
        task: int64 (batch,).
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    task: Tensor
