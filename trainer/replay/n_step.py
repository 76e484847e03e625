"""Transitions of several steps at once: what targets of n steps are learnt from (Hessel et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.replay.transitions import Floats, TransitionReplay

Flags = npt.NDArray[np.bool_]


class Summed(NamedTuple):
    """Transitions of k steps, from 1 to n; every array's first dimension is that of the transitions.

    Attributes:
        observation: before the first action, (rows, observation_dim).
        action: the first, (rows, action_dim).
        reward: the sum of k rewards, each discounted from the first on, (rows,).
        next_observation: after the last step, (rows, observation_dim).
        goes_on: gamma^(k-1), and 0 where the episode was terminated, (rows,): with one more gamma it is what
            the value of the next observation counts.
    """

    observation: Floats
    action: Floats
    reward: Floats
    next_observation: Floats
    goes_on: Floats


class NStepSums:
    """Holds the last n - 1 transitions of each environment back, until their sums are complete.

    A sum is complete after n steps, or with the last step of the episode: then of as many rewards as there
    are. Those of an environment leave in the order of time.

    Args:
        steps: n, at least 1.
        gamma: discount of a step.
        num_envs: environments.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
    """

    def __init__(
        self, steps: int, gamma: float, num_envs: int, observation_dim: int, action_dim: int
    ) -> None:
        self._discounts = gamma ** np.arange(steps)
        # of each of the last n steps, the oldest first
        self._observation = np.zeros((steps, num_envs, observation_dim), np.float32)
        self._action = np.zeros((steps, num_envs, action_dim), np.float32)
        self._reward = np.zeros((steps, num_envs))
        self._held = np.zeros((steps, num_envs), np.bool_)

    def add(
        self,
        observation: Floats,
        action: Floats,
        reward: Floats,
        next_observation: Floats,
        terminated: Flags,
        truncated: Flags,
    ) -> Summed:
        """Takes in one transition per environment; returns what is complete now.

        Args:
            observation: before the action, (num_envs, observation_dim).
            action: what was done, (num_envs, action_dim).
            reward: what it brought, (num_envs,).
            next_observation: what it led to, also at the end of an episode.
            terminated: whether nothing follows that.
            truncated: whether time cuts the episode off.
        """
        for held, new in (
            (self._observation, observation),
            (self._action, action),
            (self._reward, 0.0),
            (self._held, True),
        ):
            held[:-1] = held[1:]
            held[-1] = new
        discounts = self._discounts[::-1, None]  # of this reward in each sum
        self._reward += discounts * reward
        complete = self._held & (terminated | truncated)
        complete[0] |= self._held[0]
        self._held &= ~complete
        env = complete.nonzero()[1]
        return Summed(
            self._observation[complete],
            self._action[complete],
            self._reward[complete].astype(np.float32),
            next_observation[env],
            (discounts * ~terminated)[complete].astype(np.float32),
        )

    def cut(self) -> None:
        """Drops what is held back, for environments that start new episodes."""
        self._held[:] = False

    def state_dict(self) -> dict[str, Any]:
        """Returns what is held back, as tensors."""
        return {name: torch.from_numpy(array.copy()) for name, array in self._arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned; nothing if it is of other environments or another n."""
        self.cut()
        if all(tuple(state[name].shape) == array.shape for name, array in self._arrays.items()):
            for name, array in self._arrays.items():
                array[:] = state[name].numpy()

    @property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "observation": self._observation,
            "action": self._action,
            "reward": self._reward,
            "held": self._held,
        }


class NStepReplay(TransitionReplay):
    """A `TransitionReplay` whose transitions are of n steps each, fewer at the end of an episode.

    Args:
        capacity: transitions.
        batch_size: transitions in a batch.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        device: where batches are wanted.
        on_host: keep the rows of a GPU's replay in the host's memory.
        steps: n, at least 1.
        gamma: discount of a step.
        num_envs: environments that fill it.
    """

    def __init__(
        self,
        capacity: int,
        batch_size: int,
        observation_dim: int,
        action_dim: int,
        device: torch.device | str = "cpu",
        *,
        on_host: bool = False,
        steps: int,
        gamma: float,
        num_envs: int,
    ) -> None:
        super().__init__(capacity, batch_size, observation_dim, action_dim, device, on_host=on_host)
        self._sums = NStepSums(steps, gamma, num_envs, observation_dim, action_dim)

    def add(
        self,
        observation: Floats,
        action: Floats,
        reward: Floats,
        next_observation: Floats,
        terminated: Flags,
        truncated: Flags | None = None,
    ) -> None:
        """Takes in one transition per environment, and writes those that are complete.

        Args:
            observation: before the action.
            action: what was done.
            reward: what it brought.
            next_observation: what it led to, also at the end of an episode.
            terminated: whether nothing follows that.
            truncated: whether time cuts the episode off; None where it never does.
        """
        cut = np.zeros_like(terminated) if truncated is None else truncated
        self._write(*self._sums.add(observation, action, reward, next_observation, terminated, cut))

    def cut(self) -> None:
        """Drops what is held back: its episodes do not go on."""
        self._sums.cut()

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the rows."""
        return {**super().state_dict(), "sums": self._sums.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, from a replay of the same shape; then `put` the rows."""
        super().load_state_dict(state)
        self._sums.load_state_dict(state["sums"])
