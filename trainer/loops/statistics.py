"""Returns and successes of training episodes, task by task, between two lines of the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Episode = tuple[int, float, bool, int]
"""Task, return, whether it was solved, and steps of an episode that has ended."""


class EpisodeStatistics:
    """Adds up running episodes and keeps those that ended since the last `drain`.

    Args:
        num_envs: environments.
        tasks: task names.
        success: whether success means anything in these environments.
        lengths: whether episodes differ in length, which is then recorded too.
    """

    def __init__(
        self, num_envs: int, tasks: Sequence[str], *, success: bool = True, lengths: bool = False
    ) -> None:
        self._lengths = lengths
        self._tasks = tasks
        self._success = success
        self._return = np.zeros(num_envs)
        self._solved = np.zeros(num_envs, np.bool_)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended: list[Episode] = []

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
        self._steps += 1
        if not ended.any():
            return
        for env in np.flatnonzero(ended):
            self._ended.append(
                (int(task[env]), float(self._return[env]), bool(self._solved[env]), int(self._steps[env]))
            )
        self._return[ended] = 0.0
        self._solved[ended] = False
        self._steps[ended] = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the running episodes and those not yet drained, as plain values."""
        return {
            "return": self._return.tolist(),
            "solved": self._solved.tolist(),
            "steps": self._steps.tolist(),
            "ended": list(self._ended),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, for as many environments."""
        self._return[:] = state["return"]
        self._solved[:] = state["solved"]
        self._steps[:] = state["steps"]
        self._ended = [*state["ended"]]

    def take(self) -> list[Episode]:
        """Returns the ended episodes and keeps them no longer."""
        ended, self._ended = self._ended, []
        return ended

    def put(self, ended: Iterable[Episode]) -> None:
        """Takes in ended episodes of another rank."""
        self._ended += ended

    def drain(self) -> dict[str, float]:
        """Returns `return/<task>`, `return/mean`, `train_success/<task>` and, if asked for, `length/<task>`.

        They are those of the episodes that ended. The mean is over tasks, and there only when every task has
        ended an episode.
        """
        row: dict[str, float] = {}
        means = []
        for index, name in enumerate(self._tasks):
            episodes = [episode for task, *episode in self._ended if task == index]
            if episodes:
                returns, solved, lengths = zip(*episodes, strict=True)
                means.append(float(np.mean(returns)))
                row[f"return/{name}"] = means[-1]
                if self._success:
                    row[f"train_success/{name}"] = float(np.mean(solved))
                if self._lengths:
                    row[f"length/{name}"] = float(np.mean(lengths))
        if len(means) == len(self._tasks):
            row["return/mean"] = float(np.mean(means))
        self._ended.clear()
        return row
