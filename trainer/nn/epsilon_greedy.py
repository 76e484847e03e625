"""The policy of Q-learning: the choice of the greatest value, or now and then any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.nn.policy import ExploringActor, ObservationEncoder
from trainer.nn.q_network import QNetwork


class EpsilonGreedyPolicy(ExploringActor):
    """Takes the choice of the greatest value, and with probability epsilon any, all alike.

    An action is the index of a choice, as a float.

    Args:
        observation_dim: numbers in an observation.
        choices: how many there are to choose from.
        hidden: widths of the hidden layers, see `QNetwork`.
        dueling: see `QNetwork`.
        epsilon: at the start.

    Attributes:
        epsilon: the present one, a scalar on the device, which acting weights are copied with.
    """

    actor: QNetwork
    epsilon: Tensor

    def __init__(
        self, observation_dim: int, choices: int, *, hidden: Sequence[int], dueling: bool, epsilon: float
    ) -> None:
        super().__init__()
        self.action_dim, self.noise_dim = 1, 2
        self.encoder = ObservationEncoder(observation_dim, num_tasks=1, one_hot=False)
        self.actor = QNetwork(self.encoder.features, hidden, choices, dueling=dueling)
        self.register_buffer("epsilon", torch.tensor(epsilon))

    @torch.no_grad()
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Returns choices (batch, 1).

        Args:
            observation: (batch, observation_dim).
            task: int64 (batch,), of no meaning: there is one.
            noise: (batch, 2), uniform in [0, 1): whether to take any choice, and which.
        """
        whether, which = noise.chunk(2, -1)
        any_choice = (which * self.actor.choices).floor()
        return torch.where(whether < self.epsilon, any_choice, self.mode(observation, task))

    @torch.no_grad()
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the choices of the greatest values, (batch, 1)."""
        values: Tensor = self.actor(self.encoder(observation, task))
        return values.argmax(-1, keepdim=True).float()

    def draw_noise(self, rows: int) -> Tensor:
        """Draws uniform noise (rows, 2) in [0, 1) from the host's default generator."""
        return torch.rand(rows, self.noise_dim)

    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws choices (rows, 1), all alike."""
        return rng.integers(self.actor.choices, size=(rows, 1)).astype(np.float32)
