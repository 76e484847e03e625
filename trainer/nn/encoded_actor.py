"""An actor of the off-policy loop: it acts on encoded observations, by noise that is given to it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nn.actor import Actor
from trainer.nn.encoder import ObservationEncoder


class EncodedActor(Actor):
    """An actor with one network behind an observation encoder.

    Args:
        encoder: makes the network's inputs.
        actor: the network.
        action_dim: numbers in an action.
        noise_dim: numbers of noise an action takes.
    """

    def __init__(
        self, encoder: ObservationEncoder, actor: nn.Module, action_dim: int, noise_dim: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor = actor
        self.action_dim = action_dim
        self.noise_dim = noise_dim

    @abstractmethod
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Returns exploring actions (batch, action_dim).

        Args:
            observation: (batch, observation_dim).
            task: int64 (batch,).
            noise: (batch, noise_dim), as `draw_noise` draws it.
        """

    @abstractmethod
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the greedy actions (batch, action_dim); arguments as those of `sample`."""

    @abstractmethod
    def draw_noise(self, rows: int) -> Tensor:
        """Draws the noise of actions (rows, noise_dim) from the host's default generator."""

    @abstractmethod
    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws uniform actions (rows, action_dim), those of the warm-up."""

    def act(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]], *, greedy: bool
    ) -> npt.NDArray[np.float32]:
        """Acts from and to arrays on the host, with `mode` if greedy and `sample` otherwise; same shapes."""
        device = self.encoder.mean.device
        seen, of = torch.from_numpy(observation).to(device), torch.from_numpy(task).to(device).long()
        if greedy:
            action = self.mode(seen, of)
        else:
            action = self.sample(seen, of, self.draw_noise(len(seen)).to(device))
        array: npt.NDArray[np.float32] = action.cpu().numpy()
        return array
