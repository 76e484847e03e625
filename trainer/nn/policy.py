"""The stochastic policy with its observation encoder: everything needed to act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.nn.actor import Actor
from trainer.nn.distributions import squashed_gaussian
from trainer.nn.encoder import ObservationEncoder
from trainer.nn.mlp import EnsembleMLP

_OUTPUT_BOUND = 1e-3
"""Initial bound of the output layer, from the code of McLean et al. 2025: actions start centred on 0."""


class Policy(Actor):
    """A squashed Gaussian whose mean and deviation both depend on observation and task.

    Args:
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        num_tasks: tasks.
        hidden: widths of the hidden layers.
        one_hot: append the task's one-hot id to the observation.
        multi_head: an output head per task.
        init: initial distribution of the hidden weights, see `EnsembleMLP`.
        log_std_bounds: least and greatest log standard deviation.
        log_std_bounding: `clip`, or `tanh`, scaled to the bounds.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        num_tasks: int,
        *,
        hidden: Sequence[int],
        one_hot: bool,
        multi_head: bool,
        init: str,
        log_std_bounds: tuple[float, float],
        log_std_bounding: str = "clip",
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self._log_std_bounds = log_std_bounds
        self._tanh_bounds = log_std_bounding == "tanh"
        self.encoder = ObservationEncoder(observation_dim, num_tasks, one_hot=one_hot)
        self.actor = EnsembleMLP(
            1,
            self.encoder.features,
            hidden,
            2 * action_dim,
            heads=num_tasks if multi_head else 1,
            init=init,
            output_bound=_OUTPUT_BOUND,
        )

    def distribution(self, features: Tensor, task: Tensor) -> tuple[Tensor, Tensor]:
        """Maps features ([seeds,] batch, features) to mean and log deviation, (..., action_dim) each."""
        mean, log_std = self.actor(features, task).squeeze(-3).chunk(2, -1)
        low, high = self._log_std_bounds
        if self._tanh_bounds:
            return mean, low + 0.5 * (high - low) * (1.0 + log_std.tanh())
        return mean, log_std.clamp(low, high)

    @torch.no_grad()
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor | None = None) -> Tensor:
        """Draws actions (batch, action_dim) in (-1, 1) for observations (batch, observation_dim).

        Args:
            observation: the observations.
            task: int64 (batch,).
            noise: (batch, action_dim), standard normal; drawn here if absent.
        """
        mean, log_std = self.distribution(self.encoder(observation, task), task)
        return squashed_gaussian(mean, log_std, torch.randn_like(mean) if noise is None else noise)[0]

    @torch.no_grad()
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the deterministic actions tanh(mean), (batch, action_dim)."""
        return torch.tanh(self.distribution(self.encoder(observation, task), task)[0])

    def act(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]], *, greedy: bool
    ) -> npt.NDArray[np.float32]:
        """Acts from and to arrays on the host, with `mode` if greedy and `sample` otherwise; same shapes."""
        device = self.encoder.mean.device
        choose = self.mode if greedy else self.sample
        action = choose(torch.from_numpy(observation).to(device), torch.from_numpy(task).to(device).long())
        array: npt.NDArray[np.float32] = action.cpu().numpy()
        return array
