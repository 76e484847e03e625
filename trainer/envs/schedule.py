"""Decides which task each environment plays and when it starts the next episode. No simulation.

Training episodes have a fixed length, so their ends are known in advance and decided in one place. This
makes a run independent of the number of worker processes, which only follow orders.

The number of environments changes neither the ratio of updates to steps nor a batch, a buffer, the warm-up or
how many steps a task gets. It does change how fresh the policy is that acts (with 48 environments and an
update every 10 steps 4.8 updates fall between two actions of an environment), and episodes of one length end
together. Every task owns `num_envs // num_tasks` environments
for good. The environments left over, which start and end their episodes together, take the tasks in turn:
over time every task receives the same amount of data whatever `num_envs` is, also when there are fewer
environments than tasks, and never do two of them play the same task at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_GOALS = 2**30
"""Goals are 32-bit numbers; these leave room for the environments that begin at one."""


class WorkerCommand(IntEnum):
    """An environment's order for one vector step.

    `STEP_AUTORESET` is for environments that end their episodes themselves: one that has just ended its
    episode starts another in the same vector step, of its own choice.
    """

    IDLE = 0
    STEP = 1
    STEP_THEN_RESET = 2
    RESET = 3
    STEP_AUTORESET = 4


class Orders(NamedTuple):
    """One vector step's orders, each an array of shape (num_envs,).

    Attributes:
        command: int8, see `WorkerCommand`.
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
        turn: the task that the first of the environments left over begins with.
        state: where to continue, from `state` of a schedule with as many environments and tasks.
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
        turn: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        copies, spare = divmod(num_envs, num_tasks)
        self._episode_steps = episode_steps
        self._num_tasks = num_tasks
        self._num_goals = num_goals
        self._rng = rng
        self._fixed = num_envs - spare
        self._now = 0
        self._turn = turn % num_tasks
        if state is None:
            phase = np.arange(num_envs) // num_tasks if stagger else np.zeros(num_envs, np.int64)
            self._ends = episode_steps - phase * episode_steps // (copies + (spare > 0))
            self._tasks = np.arange(num_envs, dtype=np.int32) % num_tasks
            self._move()
        else:
            self._ends = np.array(state["remaining"], np.int64)
            self._tasks = np.array(state["tasks"], np.int32)
            self._turn = int(state["turn"])
            assert self._ends.shape == self._tasks.shape == (num_envs,), "state of another schedule"
        self._foresee()

    @property
    def tasks(self) -> npt.NDArray[np.int32]:
        """The task each environment plays in the coming step, shape (num_envs,); a copy."""
        return self._tasks.copy()

    @property
    def remaining(self) -> npt.NDArray[np.int64]:
        """Steps left of each environment's running episode, the coming one included, (num_envs,); a copy."""
        return self._ends - self._now

    def state(self) -> dict[str, Any]:
        """Returns the schedule's state as plain values, without the generator of the goals."""
        return {"remaining": self.remaining.tolist(), "tasks": self._tasks.tolist(), "turn": self._turn}

    def first(self) -> Orders:
        """Returns the orders that start every environment's first episode."""
        command = np.full(self._tasks.shape, WorkerCommand.RESET, np.int8)
        return Orders(command, self.tasks, self._goals(self._tasks.size))

    def advance(self) -> Orders:
        """Returns the orders of the coming step, read-only, and moves on to the step after it."""
        self._now += 1
        if self._now < self._next_end:
            return self._between
        ends = np.flatnonzero(self._ends == self._now)
        command = np.full(self._tasks.shape, WorkerCommand.STEP, np.int8)
        command[ends] = WorkerCommand.STEP_THEN_RESET
        self._ends[ends] += self._episode_steps
        if ends[-1] >= self._fixed:
            self._move()
        goal = np.zeros(self._tasks.shape, np.int32)
        goal[ends] = self._goals(ends.size)
        self._foresee()
        return Orders(command, self.tasks, goal)

    def _move(self) -> None:
        """Gives each environment left over, all of which begin an episode now, the next task in turn."""
        spare = self._tasks.size - self._fixed
        self._tasks[self._fixed :] = (self._turn + np.arange(spare)) % self._num_tasks
        self._turn = (self._turn + spare) % self._num_tasks

    def _foresee(self) -> None:
        """Prepares the steps up to the next end of an episode, whose orders are all the same."""
        self._next_end = int(self._ends.min())
        command = np.full(self._tasks.shape, WorkerCommand.STEP, np.int8)
        self._between = Orders(command, self.tasks, np.zeros(self._tasks.shape, np.int32))
        for array in self._between:
            array.flags.writeable = False

    def _goals(self, count: int) -> npt.NDArray[np.int32]:
        return self._rng.integers(self._num_goals, size=count, dtype=np.int32)


class Autoreset:
    """The plan of environments with one task that end their episodes themselves: there is none to make.

    Args:
        num_envs: environments, at least 1.
        begin: the goal of the first episode of the first of them; the others have those after it. Another
            one for each start of a run gives other episodes.
    """

    def __init__(self, num_envs: int, begin: int = 0) -> None:
        zeros = np.zeros(num_envs, np.int32)
        goal = begin % _GOALS + np.arange(num_envs, dtype=np.int32)
        self._first = Orders(np.full(num_envs, WorkerCommand.RESET, np.int8), zeros, goal)
        self._orders = Orders(np.full(num_envs, WorkerCommand.STEP_AUTORESET, np.int8), zeros, zeros.copy())
        for array in self._orders:
            array.flags.writeable = False

    @property
    def tasks(self) -> npt.NDArray[np.int32]:
        """The task each environment plays, the only one, shape (num_envs,); a copy."""
        return self._orders.task.copy()

    @property
    def remaining(self) -> npt.NDArray[np.int64]:
        """At least the coming step is left of each episode, shape (num_envs,); more is not known."""
        return np.ones(self._orders.task.shape, np.int64)

    def state(self) -> dict[str, Any]:
        """Returns nothing: the environments know where they are."""
        return {}

    def first(self) -> Orders:
        """Returns the orders that start every environment's first episode."""
        return self._first

    def advance(self) -> Orders:
        """Returns the orders of the coming step, read-only."""
        return self._orders
