"""Which task each environment plays, and when it starts the next episode: pure bookkeeping, no simulation.

Training episodes have a fixed length, so who ends when is known in advance and can be decided in one
place. That is what makes a run independent of the number of worker processes: they only obey.

The number of environments never changes the science. Every task owns `num_envs // num_tasks` environments
for good. The environments left over move from task to task at the end of each episode, always to the task
that the moving ones have served least, so over time every task receives the same amount of data whatever
`num_envs` is, also when there are fewer environments than tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Command(IntEnum):
    """What an environment is told to do in one vector step."""

    IDLE = 0
    STEP = 1
    STEP_THEN_RESET = 2
    RESET = 3


class Orders(NamedTuple):
    """One vector step's orders, each an array of shape (num_envs,).

    Attributes:
        command: int8, see `Command`.
        task: int32, the task of the episode that a reset starts.
        goal: int32, its goal's index.
    """

    command: npt.NDArray[np.int8]
    task: npt.NDArray[np.int32]
    goal: npt.NDArray[np.int32]


class Schedule:
    """The plan of all training episodes.

    Args:
        num_envs: environments, at least 1.
        num_tasks: tasks, at least 1.
        episode_steps: length of an episode in steps.
        num_goals: goals per task; each episode draws one uniformly.
        rng: the generator of the goals.
        stagger: start the copies of a task out of phase, so that their episodes do not all end together.
        moved: steps per task that moving environments have been given so far, from an earlier `moved`.
    """

    def __init__(
        self,
        num_envs: int,
        num_tasks: int,
        episode_steps: int,
        num_goals: int,
        rng: np.random.Generator,
        *,
        stagger: bool = False,
        moved: Sequence[int] | None = None,
    ) -> None:
        copies, spare = divmod(num_envs, num_tasks)
        self._episode_steps = episode_steps
        self._num_goals = num_goals
        self._rng = rng
        self._fixed = num_envs - spare
        self._moved = np.array(moved if moved is not None else np.zeros(num_tasks), np.int64)
        phase = np.arange(num_envs) // num_tasks if stagger else np.zeros(num_envs, np.int64)
        self._remaining = episode_steps - phase * episode_steps // (copies + (spare > 0))
        self._tasks = np.arange(num_envs, dtype=np.int32) % num_tasks
        for env in range(self._fixed, num_envs):
            self._tasks[env] = self._least_served(int(self._remaining[env]))

    @property
    def tasks(self) -> npt.NDArray[np.int32]:
        """The task each environment plays in the coming step, shape (num_envs,); a copy."""
        return self._tasks.copy()

    @property
    def moved(self) -> list[int]:
        """Steps per task that moving environments have been given, the running episodes included."""
        return [int(steps) for steps in self._moved]

    def first(self) -> Orders:
        """Returns the orders that start every environment's first episode."""
        command = np.full(self._tasks.shape, Command.RESET, np.int8)
        return Orders(command, self.tasks, self._goals(self._tasks.size))

    def advance(self) -> Orders:
        """Returns the orders of the coming step and moves on to the step after it."""
        self._remaining -= 1
        ends = np.flatnonzero(self._remaining == 0)
        command = np.full(self._tasks.shape, Command.STEP, np.int8)
        command[ends] = Command.STEP_THEN_RESET
        self._remaining[ends] = self._episode_steps
        for env in ends[ends >= self._fixed]:
            self._tasks[env] = self._least_served(self._episode_steps)
        goal = np.zeros(self._tasks.shape, np.int32)
        goal[ends] = self._goals(ends.size)
        return Orders(command, self.tasks, goal)

    def _least_served(self, steps: int) -> int:
        task = int(self._moved.argmin())
        self._moved[task] += steps
        return task

    def _goals(self, count: int) -> npt.NDArray[np.int32]:
        return self._rng.integers(self._num_goals, size=count, dtype=np.int32)
