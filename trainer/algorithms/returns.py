"""How great the returns of each task are, from what its episodes brought: what rewards are divided by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SHARE = 0.8
"""Of the bound, for the greatest return; the rest is for entropy and what lies behind an episode's cut."""

Floats = npt.NDArray[np.float64]


def greatest_return(rewards: Sequence[float], gamma: float) -> float:
    """Returns the greatest magnitude that the return of any step of an episode has.

    Nothing is known of what would follow the cut of the episode: it is taken to go on with the episode's mean
    reward for ever, as Nauman et al. 2025 do.

    Args:
        rewards: of the episode, in order; not empty.
        gamma: discount a step.
    """
    behind = sum(rewards) / len(rewards) / (1.0 - gamma)
    returns = accumulate(
        reversed(rewards), lambda following, reward: reward + gamma * following, initial=behind
    )
    next(returns)  # what lies behind the cut is no step's
    return max(map(abs, returns))


class ReturnScale:
    """The greatest return of each task so far, and the factor on its rewards that follows from it.

    The factors lie on the device at a fixed address, so that a captured update reads the newest; they change
    only between updates, when an episode of greater returns has ended. Until a task's first has, or while all
    its rewards are 0, its factor is 1.

    Args:
        num_tasks: tasks.
        num_envs: environments.
        episode_steps: length of an episode at most.
        gamma: discount a step.
        bound: what returns are to stay within.
        device: where the factors are read.
        over_learners: returns the greatest of each number over all who learn together, asked once a vector
            step; this one is alone by default. All then have the same factors.

    Attributes:
        factor: (num_tasks,), on the device.
    """

    def __init__(
        self,
        num_tasks: int,
        num_envs: int,
        episode_steps: int,
        gamma: float,
        bound: float,
        device: torch.device | str = "cpu",
        *,
        over_learners: Callable[[Floats], Floats] = lambda own: own,
    ) -> None:
        self._gamma = gamma
        self._fitted = _SHARE * bound
        self._over_learners = over_learners
        self._greatest = np.zeros(num_tasks)
        self._rewards = np.zeros((num_envs, episode_steps), np.float32)
        self._length = np.zeros(num_envs, np.int64)
        self.factor = torch.ones(num_tasks, device=device)

    def add(
        self,
        reward: npt.NDArray[np.float32],
        task: npt.NDArray[np.integer[Any]],
        remaining: npt.NDArray[np.integer[Any]],
    ) -> None:
        """Takes in a vector step; all arrays are (num_envs,).

        Args:
            reward: what it brought.
            task: what each environment plays.
            remaining: steps left of each episode, this one included.
        """
        self._rewards[np.arange(len(reward)), self._length] = reward
        self._length += 1
        ended = np.flatnonzero(remaining == 1)
        greatest = self._greatest.copy()
        for env in ended:
            rewards = self._rewards[env, : self._length[env]].tolist()
            largest = greatest_return(rewards, self._gamma)
            if np.isfinite(largest):
                greatest[task[env]] = max(greatest[task[env]], largest)
        self._length[ended] = 0
        greatest = self._over_learners(greatest)
        if (greatest != self._greatest).any():
            self._greatest = greatest
            self._publish()

    def forget_episodes(self) -> None:
        """Drops what the running episodes have brought, for environments that start new ones."""
        self._length[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns everything, the running episodes' rewards included."""
        return {
            "greatest": torch.from_numpy(self._greatest.copy()),
            "rewards": torch.from_numpy(self._rewards.copy()),
            "length": torch.from_numpy(self._length.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` returned; of other environments, without their running episodes."""
        self._greatest[:] = state["greatest"].numpy()
        if state["rewards"].shape == self._rewards.shape:
            self._rewards[:] = state["rewards"].numpy()
            self._length[:] = state["length"].numpy()
        self._publish()

    def _publish(self) -> None:
        scale = np.where(self._greatest > 0, self._greatest, self._fitted)
        self.factor.copy_(torch.from_numpy(self._fitted / scale))
