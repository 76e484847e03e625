"""The transitions between two phases of learning, filled on the host and used on the device, and advantages.

Sums over the time axis take a number of operations that is logarithmic in its length. All shapes may have
axes before those named, for several rollouts of one shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Rollout:
    """A fixed number of steps of every environment.

    On a GPU the host's side is pinned and copied once, when the rollout is full; on a CPU both are the same.

    Args:
        steps: of each environment.
        envs: environments.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        device: where to learn.

    Attributes:
        filled: steps there are so far.
        observation: float32 (steps, envs, observation_dim) on the device, as all that follow.
        action: float32 (steps, envs, action_dim).
        next_observation: what the action led to, float32 (steps, envs, observation_dim).
        reward: float32 (steps, envs).
    """

    observation: Tensor
    action: Tensor
    next_observation: Tensor
    reward: Tensor

    def __init__(
        self, steps: int, envs: int, observation_dim: int, action_dim: int, device: torch.device
    ) -> None:
        self.steps = steps
        self.filled = 0
        shape = steps, envs
        shapes = {
            "observation": (*shape, observation_dim),
            "action": (*shape, action_dim),
            "next_observation": (*shape, observation_dim),
            "reward": shape,
            "terminated": shape,
            "done": shape,
        }
        on_gpu = device.type == "cuda"
        self._host = {name: torch.zeros(size, pin_memory=on_gpu) for name, size in shapes.items()}
        self._device = {name: tensor.to(device) for name, tensor in self._host.items()}
        self._arrays: dict[str, npt.NDArray[np.float32]] = {
            name: tensor.numpy() for name, tensor in self._host.items()
        }
        self.observation, self.action, self.next_observation, self.reward = (
            self._device[name] for name in ("observation", "action", "next_observation", "reward")
        )

    @property
    def ends(self) -> Ends:
        """Where episodes end, on the device."""
        return Ends(self._device["terminated"], self._device["done"])

    def add(
        self,
        observation: npt.NDArray[np.float32],
        action: npt.NDArray[np.float32],
        reward: npt.NDArray[np.float32],
        next_observation: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """Takes one step of every environment; the arrays are copied."""
        now, arrays = self.filled, self._arrays
        arrays["observation"][now] = observation
        arrays["action"][now] = action
        arrays["reward"][now] = reward
        arrays["next_observation"][now] = next_observation
        arrays["terminated"][now] = terminated
        np.logical_or(terminated, truncated, out=arrays["done"][now], casting="unsafe")
        self.filled = now + 1

    def hand_over(self) -> None:
        """Brings a full rollout to the device and begins the next."""
        assert self.filled == self.steps, "a rollout that is not full"
        if self._device["reward"].is_cuda:
            for name, tensor in self._device.items():
                tensor.copy_(self._host[name], non_blocking=True)
            torch.cuda.synchronize()  # the host's side is overwritten from here on
        self.filled = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the steps so far."""
        return {name: tensor[: self.filled].clone() for name, tensor in self._host.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, for as many environments."""
        self.filled = len(state["reward"])
        for name, tensor in self._host.items():
            tensor[: self.filled] = state[name]


class Rollouts:
    """Stacks full rollouts of one shape: the attributes of one, with a leading axis of rollouts.

    Args:
        rollouts: handed over.
    """

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        names = ("observation", "action", "next_observation", "reward")
        self.observation, self.action, self.next_observation, self.reward = (
            torch.stack([getattr(rollout, name) for rollout in rollouts]) for name in names
        )
        self.ends = Ends(
            *(torch.stack(ends) for ends in zip(*(rollout.ends for rollout in rollouts), strict=True))
        )


class Ends(NamedTuple):
    """Where episodes end, all float32 (steps, envs) of 0 and 1.

    Attributes:
        terminated: the episode ended for good: nothing follows.
        done: another episode follows, terminated or not.
    """

    terminated: Tensor
    done: Tensor


def advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, ends: Ends, gamma: float, gae_lambda: float
) -> Tensor:
    """Estimates advantages (Schulman et al. 2016, equation 16).

    Where an episode was cut, by a time limit or by the end of the rollout, what would have followed is the
    value of the observation it was cut at; where it terminated, nothing follows.

    Args:
        reward: (steps, envs).
        value: of the observations, (steps, envs).
        next_value: of what each action led to, the last observation of an episode included; (steps, envs).
        ends: of the episodes.
        gamma: discount a step.
        gae_lambda: mix: 0 is one step, 1 the whole rollout.

    Returns:
        (steps, envs).
    """
    surprise = reward + gamma * next_value * (1.0 - ends.terminated) - value
    decay = gamma * gae_lambda * (1.0 - ends.done)
    return _scan(surprise.flip(-2), decay.flip(-2)).flip(-2)


def discounted_returns(reward: Tensor, before: Tensor, done: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Sums the discounted rewards of each episode so far.

    Args:
        reward: (steps, envs).
        before: the sums that the last rollout ended with, (envs,); zero where its last step ended an episode.
        done: where an episode ends, float (steps, envs).
        gamma: discount a step.

    Returns:
        The sums (steps, envs), and those for the next rollout to begin with (envs,).
    """
    going_on = gamma * (1.0 - done)
    decay = torch.cat([torch.zeros_like(reward[..., :1, :]), going_on[..., :-1, :]], -2)
    first = reward[..., :1, :] + gamma * before.unsqueeze(-2)
    sums = _scan(torch.cat([first, reward[..., 1:, :]], -2), decay)
    return sums, sums[..., -1, :] * (1.0 - done[..., -1, :])


def _scan(values: Tensor, decay: Tensor) -> Tensor:
    """Solves sums[t] = values[t] + decay[t] * sums[t - 1] along the last axis but one, by doubling.

    After the round of a shift, each sum reaches back that many more steps (Hillis and Steele 1986).
    """
    steps, shift = values.shape[-2], 1
    while shift < steps:
        late, early = _apart(values, shift)
        values = torch.cat(
            [values.narrow(-2, 0, shift), late + decay.narrow(-2, shift, steps - shift) * early], -2
        )
        if 2 * shift < steps:
            late, early = _apart(decay, shift)
            decay = torch.cat([torch.zeros_like(decay.narrow(-2, 0, shift)), late * early], -2)
        shift *= 2
    return values


def _apart(values: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Returns all steps from the one numbered `shift`, and beside each of them the one as much before it."""
    rest = values.shape[-2] - shift
    return values.narrow(-2, shift, rest), values.narrow(-2, 0, rest)


SCALARS = 4
"""Parts of a row that are one number: all after the action."""


class Transitions(NamedTuple):
    """Transitions with what the policy of their time thought of them; views of `Packed.rows`.

    Attributes:
        features: what the networks see, (rows, observation_dim).
        action: (rows, action_dim).
        log_density: of the action, (rows,).
        value: of the observation, (rows,).
        advantage: of the action, (rows,).
        target: for the value: value and advantage together, (rows,).
    """

    features: Tensor
    action: Tensor
    log_density: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor


class Packed(NamedTuple):
    """Transitions in one tensor, for to draw a batch from it is one gather.

    Where several learn at once, each has its own rows, along an axis before all others, and its own choice.

    Attributes:
        rows: (transitions, numbers of one).
        widths: of the parts of a row, in the order of `Transitions`.
    """

    rows: Tensor
    widths: tuple[int, ...]

    def batch(self, chosen: Tensor | None = None) -> Transitions:
        """Returns the transitions with these indices (batch,), or all."""
        rows = self.rows
        if chosen is not None and chosen.dim() == 1:
            rows = rows.index_select(0, chosen)
        elif chosen is not None:
            begins = torch.arange(len(rows), device=rows.device).unsqueeze(-1) * rows.shape[1]
            rows = rows.flatten(0, 1).index_select(0, (begins + chosen).flatten())
            rows = rows.view(*chosen.shape, -1)
        features, action, *scalars = torch.split(rows, list(self.widths), -1)
        return Transitions(features, action, *(scalar.squeeze(-1) for scalar in scalars))
