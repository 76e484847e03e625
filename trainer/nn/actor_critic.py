"""Policy and value networks of on-policy algorithms, separate but with the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nn.actor import Actor
from trainer.nn.heads import Head
from trainer.nn.moments import RunningMoments
from trainer.nn.perceptron import Perceptron

_POLICY_GAIN = 0.01
"""Gain of the policy's last layer, as in OpenAI's baselines: first actions hardly depend on observations."""


class ActorCritic(Actor):
    """A policy network and a separate value network.

    Args:
        observation_dim: numbers in an observation.
        head: the distribution over actions.
        hidden: widths of the hidden layers, of both networks.
        activation: `tanh` or `relu`.
        normalize: standardise observations by `moments`.
        with_critic: include the value network.

    Attributes:
        inputs: size of both networks' inputs.
        action_dim: numbers in an action.
        moments: of the observations; they change only when new ones are merged.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        head: Head,
        *,
        hidden: Sequence[int],
        activation: str,
        normalize: bool,
        with_critic: bool = True,
    ) -> None:
        super().__init__()
        self.inputs = observation_dim
        self.action_dim = action_dim
        self.head = head
        self.moments = RunningMoments(observation_dim) if normalize else None
        self.actor = Perceptron(
            observation_dim, hidden, head.outputs, activation=activation, output_gain=_POLICY_GAIN
        )
        self.critic = None
        if with_critic:
            self.critic = Perceptron(observation_dim, hidden, 1, activation=activation, output_gain=1.0)

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.parameters()).device

    def networks(self) -> list[nn.Parameter]:
        """Returns the parameters of the networks, without the head's."""
        return [*self.actor.parameters(), *(self.critic.parameters() if self.critic is not None else ())]

    def shown(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.float32]:
        """Returns the policy's inputs, (rows, inputs): the observations unchanged.

        Args:
            observation: (rows, observation_dim).
            task: (rows,), ignored: there is only one task.
        """
        del task
        return observation

    def features(self, observation: Tensor) -> Tensor:
        """Maps observations (..., observation_dim) to both networks' inputs, of the same shape."""
        return observation if self.moments is None else self.moments.standardised(observation)

    def value(self, features: Tensor) -> Tensor:
        """Returns the values (...) of features (..., observation_dim)."""
        assert self.critic is not None, "a policy without values"
        value: Tensor = self.critic(features)
        return value.squeeze(-1)

    @torch.no_grad()
    def sample(self, observation: Tensor, noise: Tensor) -> Tensor:
        """Draws actions (..., action_dim) with noise (..., head.noise_dim)."""
        return self.head.sample(self.actor(self.features(observation)), noise)

    @torch.no_grad()
    def mode(self, observation: Tensor) -> Tensor:
        """Returns the likeliest actions (..., action_dim)."""
        return self.head.mode(self.actor(self.features(observation)))

    def act(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]], *, greedy: bool
    ) -> npt.NDArray[np.float32]:
        """Acts from and to arrays on the host, with `mode` if greedy and `sample` otherwise; same shapes.

        Args:
            observation: (batch, observation_dim).
            task: (batch,), the task of each row.
            greedy: deterministic.
        """
        seen = torch.from_numpy(self.shown(observation, task)).to(self.device)
        if greedy:
            action = self.mode(seen)
        else:
            action = self.sample(seen, self.head.draw_noise(len(seen)).to(seen.device))
        array: npt.NDArray[np.float32] = action.cpu().numpy()
        return array
