"""Encodes an observation and its task as network inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ObservationEncoder(nn.Module):
    """Standardises observations with fixed statistics and appends the task's one-hot id.

    The statistics start as the identity. They are set at most once and then frozen: a moving normalisation
    would change the meaning of everything already in the replay.

    Args:
        observation_dim: numbers in an observation.
        num_tasks: tasks.
        one_hot: append the id.
    """

    mean: Tensor
    std: Tensor
    identity: Tensor

    def __init__(self, observation_dim: int, num_tasks: int, *, one_hot: bool) -> None:
        super().__init__()
        self.one_hot = one_hot
        self.features = observation_dim + (num_tasks if one_hot else 0)
        self.register_buffer("mean", torch.zeros(observation_dim))
        self.register_buffer("std", torch.ones(observation_dim))
        self.register_buffer("identity", torch.eye(num_tasks), persistent=False)

    def fit(self, observations: Tensor, std_floor: float) -> None:
        """Sets the statistics from observations (rows, observation_dim).

        Args:
            observations: a sample of what will be seen.
            std_floor: least standard deviation; a dimension that hardly moved would be blown up without it.
        """
        self.mean.copy_(observations.mean(0))
        self.std.copy_(observations.std(0).clamp_min(std_floor))

    def forward(self, observation: Tensor, task: Tensor) -> Tensor:
        """Maps observations (batch, observation_dim) and task ids (batch,) to features (batch, features).

        Of several seeds, each has them as its first dimension.
        """
        scaled = (observation - self.mean) / self.std
        return torch.cat([scaled, self.identity[task]], -1) if self.one_hot else scaled
