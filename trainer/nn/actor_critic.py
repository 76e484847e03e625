"""Policies of on-policy algorithms: with a value network beside it, or of several tasks and without one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nn.actor import Actor
from trainer.nn.heads import Head, StateGaussianHead
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
