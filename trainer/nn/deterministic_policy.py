"""The deterministic policy of TD3: a squashed network, and Gaussian noise to explore with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.nn.lean import LeanActor, Numbers
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.policy import ExploringActor, ObservationEncoder

_OUTPUT_BOUND = 1e-3
"""Initial bound of the output layer, as in SAC's policy: actions start centred on 0."""


class DeterministicPolicy(ExploringActor):
    """Maps observation and task to an action in [-1, 1].

    Args:
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        num_tasks: tasks.
        hidden: widths of the hidden layers.
        one_hot: append the task's one-hot id to the observation.
        multi_head: an output head per task.
        init: initial distribution of the hidden weights, see `EnsembleMLP`.
        exploration_noise: standard deviation of the noise on actions that explore.
    """

    actor: EnsembleMLP

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
        exploration_noise: float,
    ) -> None:
        super().__init__()
        self.action_dim = self.noise_dim = action_dim
        self._exploration_noise = exploration_noise
        self.encoder = ObservationEncoder(observation_dim, num_tasks, one_hot=one_hot)
        self.actor = EnsembleMLP(
            1,
            self.encoder.features,
            hidden,
            action_dim,
            heads=num_tasks if multi_head else 1,
            init=init,
            output_bound=_OUTPUT_BOUND,
        )

    @torch.no_grad()
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Returns the greedy actions with noise, (batch, action_dim), clipped to [-1, 1].

        Args:
            observation: (batch, observation_dim).
            task: int64 (batch,).
            noise: (batch, action_dim), standard normal.
        """
        return (self.mode(observation, task) + self._exploration_noise * noise).clamp(-1.0, 1.0)

    @torch.no_grad()
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the actions (batch, action_dim) for observations (batch, observation_dim)."""
        return squashed(self.actor, self.encoder(observation, task), task)

    def lean(self, rows: int) -> LeanActor:
        """Returns what draws as `sample` does, faster, for so many rows on the host."""
        encoder, actor = self.encoder, self.actor
        return LeanActor((encoder.mean, encoder.std), actor.layers(), rows, self._noisy, heads=actor.heads)

    def _noisy(self, outputs: Numbers, noise: Numbers) -> Numbers:
        noisy = np.tanh(outputs) + self._exploration_noise * noise
        actions: Numbers = np.minimum(np.maximum(noisy, -1.0), 1.0)
        return actions

    def draw_noise(self, rows: int) -> Tensor:
        """Draws standard normal noise (rows, action_dim) from the host's default generator."""
        return torch.randn(rows, self.noise_dim)

    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws actions (rows, action_dim) uniformly in [-1, 1)."""
        return rng.uniform(-1.0, 1.0, (rows, self.action_dim)).astype(np.float32)


def squashed(actor: EnsembleMLP, features: Tensor, task: Tensor) -> Tensor:
    """Returns the actions (batch, action_dim) in (-1, 1) of a network with one member.

    Args:
        actor: the network.
        features: its inputs, (batch, features).
        task: int64 (batch,), the task of each row.
    """
    return torch.tanh(actor(features, task).squeeze(-3))
