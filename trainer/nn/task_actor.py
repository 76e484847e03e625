"""A multi-task policy without a value network; its inputs include the task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from trainer.nn.actor_critic import ActorCritic
from trainer.nn.heads import StateGaussianHead
from trainer.nn.perceptron import Perceptron

_OUTPUT_BOUND = 1e-3
"""Initial bound of the output layer, from the code of McLean et al. 2025: actions start centred on 0."""


class TaskActor(ActorCritic):
    """A Gaussian whose mean and deviation both depend on the observation and on the task's one-hot id.

    Hidden weights start uniformly as He et al. 2015 draw them, hidden biases at zero, the last layer within
    a small bound.

    Args:
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        num_tasks: tasks.
        hidden: widths of the hidden layers.
        activation: `tanh` or `relu`.
        log_std_bounds: least and greatest log standard deviation.

    Attributes:
        num_tasks: tasks.
        observation_dim: numbers in an observation; what is shown begins with it.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        num_tasks: int,
        *,
        hidden: Sequence[int],
        activation: str,
        log_std_bounds: tuple[float, float],
    ) -> None:
        super().__init__(
            observation_dim + num_tasks,
            action_dim,
            StateGaussianHead(action_dim, log_std_bounds),
            hidden=hidden,
            activation=activation,
            normalize=False,
            with_critic=False,
        )
        self.num_tasks = num_tasks
        self.observation_dim = observation_dim
        self._ids = np.eye(num_tasks, dtype=np.float32)
        draw_uniformly(self.actor, _OUTPUT_BOUND)

    def shown(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.float32]:
        """Appends the one-hot ids: (rows, observation_dim) and (rows,) become (rows, inputs)."""
        return np.concatenate([observation, self._ids[task]], -1)


def draw_uniformly(network: Perceptron, output_bound: float) -> None:
    """Draws weights anew: hidden ones within sqrt(6 / fan_in), the last layer within `output_bound`."""
    *hidden, last = network.layers
    for layer in hidden:
        assert isinstance(layer, nn.Linear)
        bound = math.sqrt(6.0 / layer.in_features)
        nn.init.uniform_(layer.weight, -bound, bound)
    for parameter in last.parameters():
        nn.init.uniform_(parameter, -output_bound, output_bound)
