"""The transitions between two phases of learning, filled on the host and used on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.rollout.advantages import Ends


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
        each: the rollouts, handed over.
    """

    def __init__(self, each: Sequence[Rollout]) -> None:
        names = ("observation", "action", "next_observation", "reward")
        self.observation, self.action, self.next_observation, self.reward = (
            torch.stack([getattr(rollout, name) for rollout in each]) for name in names
        )
        self.ends = Ends(
            *(torch.stack(ends) for ends in zip(*(rollout.ends for rollout in each), strict=True))
        )
