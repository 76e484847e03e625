"""Policies that learn off policy, with their observation encoder: everything needed to act."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.nn.actor import Actor
from trainer.nn.lean import LeanActor, Numbers
from trainer.nn.mlp import EnsembleMLP

_LOG_SCALE = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)
"""The constant in the log-density of a squashed Gaussian, for each number of an action."""
_OUTPUT_BOUND = 1e-3
"""Initial bound of the output layer, from the code of McLean et al. 2025: actions start centred on 0."""


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


class ExploringActor(Actor):
    """A policy that collects the transitions it learns from: what acting asks of it, whatever the algorithm.

    Attributes:
        encoder: of its observations.
        actor: the network that acts on what the encoder gives.
        action_dim: numbers in an action.
        noise_dim: numbers of noise an action takes.
    """

    encoder: ObservationEncoder
    actor: nn.Module
    action_dim: int
    noise_dim: int

    @abstractmethod
    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws actions (rows, action_dim) uniformly from all there are, for steps before learning."""

    @abstractmethod
    def draw_noise(self, rows: int) -> Tensor:
        """Draws noise (rows, noise_dim) from the host's default generator."""

    @abstractmethod
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Draws actions (batch, action_dim) to explore with.

        Args:
            observation: (batch, observation_dim).
            task: int64 (batch,).
            noise: (batch, noise_dim), from `draw_noise`.
        """

    @abstractmethod
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the greedy actions (batch, action_dim); arguments as those of `sample`."""

    def lean(self, rows: int) -> LeanActor | None:
        """Returns what draws as `sample` does, faster, for so many rows on the host; None where nothing does.

        It reads the tensors that are the policy's now.
        """
        del rows
        return None

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


class Policy(ExploringActor):
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
        log_std_bounds: tuple[float, float],
        log_std_bounding: str = "clip",
    ) -> None:
        super().__init__()
        self.action_dim = self.noise_dim = action_dim
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

    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws actions (rows, action_dim) uniformly from [-1, 1)."""
        return rng.uniform(-1.0, 1.0, (rows, self.action_dim)).astype(np.float32)

    def draw_noise(self, rows: int) -> Tensor:
        """Draws standard normal noise (rows, action_dim) from the host's default generator."""
        return torch.randn(rows, self.noise_dim)

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

    def lean(self, rows: int) -> LeanActor:
        """Returns what draws as `sample` does, faster, for so many rows on the host."""
        encoder, actor = self.encoder, self.actor
        return LeanActor((encoder.mean, encoder.std), actor.layers(), rows, self._squashed, heads=actor.heads)

    def _squashed(self, outputs: Numbers, noise: Numbers) -> Numbers:
        mean, log_std = outputs[:, : self.action_dim], outputs[:, self.action_dim :]
        low, high = self._log_std_bounds
        if self._tanh_bounds:
            log_std = low + 0.5 * (high - low) * (1.0 + np.tanh(log_std))
        else:
            log_std = np.minimum(np.maximum(log_std, low), high)
        actions: Numbers = np.tanh(mean + np.exp(log_std) * noise)
        return actions


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Turns standard normal noise into actions with their log-densities.

    The density accounts for the squashing in the form of Haarnoja et al. 2018, appendix C, written so
    that it stays finite for large arguments: log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)).

    Args:
        mean: (..., actions), before squashing.
        log_std: (..., actions).
        noise: (..., actions), the draw.

    Returns:
        Actions (..., actions), differentiable in both arguments, and log-densities (...).
    """
    raw = mean + log_std.exp() * noise
    # in as few operations as can be, constants last: on a GPU each costs more than its arithmetic
    gaussian = -0.5 * noise.square() - log_std
    log_density = torch.add(gaussian, raw + functional.softplus(-2.0 * raw), alpha=2.0).sum(-1)
    return torch.tanh(raw), log_density - noise.shape[-1] * _LOG_SCALE
