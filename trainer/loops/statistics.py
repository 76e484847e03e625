"""Returns and successes of training episodes, task by task, between two lines of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class EpisodeStatistics:
    """Adds up running episodes and keeps those that ended since the last `drain`.

    Args:
        num_envs: environments.
        tasks: task names.
        success: whether success means anything in these environments.
    """

    def __init__(self, num_envs: int, tasks: Sequence[str], *, success: bool = True) -> None:
        self._tasks = tasks
        self._success = success
        self._return = np.zeros(num_envs)
        self._solved = np.zeros(num_envs, np.bool_)
        self._ended: list[tuple[int, float, bool]] = []

    def add(
        self,
        task: npt.NDArray[np.integer[Any]],
        reward: npt.NDArray[np.float32],
        success: npt.NDArray[np.bool_],
        ended: npt.NDArray[np.bool_],
    ) -> None:
        """Takes one vector step; all arrays have the shape (num_envs,)."""
        self._return += reward
        self._solved |= success
        for env in np.flatnonzero(ended):
            self._ended.append((int(task[env]), float(self._return[env]), bool(self._solved[env])))
        self._return[ended] = 0.0
        self._solved[ended] = False

    def state_dict(self) -> dict[str, Any]:
        """Returns the running episodes and those not yet drained, as plain values."""
        return {"return": self._return.tolist(), "solved": self._solved.tolist(), "ended": list(self._ended)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, for as many environments."""
        self._return[:] = state["return"]
        self._solved[:] = state["solved"]
        self._ended = [(task, total, solved) for task, total, solved in state["ended"]]

    def drain(self) -> dict[str, float]:
        """Returns `return/<task>`, `return/mean` and `train_success/<task>` of the ended episodes.

        The mean is over tasks, and there only when every task has ended an episode.
        """
        found: dict[str, float] = {}
        means = []
        for index, name in enumerate(self._tasks):
            episodes = [(total, solved) for task, total, solved in self._ended if task == index]
            if episodes:
                returns, solved = zip(*episodes, strict=True)
                means.append(float(np.mean(returns)))
                found[f"return/{name}"] = means[-1]
                if self._success:
                    found[f"train_success/{name}"] = float(np.mean(solved))
        if len(means) == len(self._tasks):
            found["return/mean"] = float(np.mean(means))
        self._ended.clear()
        return found
