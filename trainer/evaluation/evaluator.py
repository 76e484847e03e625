"""Plays an evaluation: distinct goals, own environments, the deterministic policy, success at any step.

Meta-World's goals are every k-th of a task's list, a Gymnasium environment's are seeds of its own. They are
dealt to the environments in advance: counting the first episodes that happen to end would favour short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Orders, WorkerCommand
from trainer.envs.vector import STEP_TIMEOUT, VectorEnv
from trainer.evaluation.result import Evaluation
from trainer.recipe.memory import EVALUATION_ENVIRONMENTS

Act = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int32]], npt.NDArray[np.float32]]
"""Maps observations (n, observation_dim) and task ids (n,) to actions (n, action_dim)."""

_LONGEST = 10_000
"""Steps after which an episode ends if the environment sets no limit."""


class Evaluator:
    """Plays episodes in environments of its own.

    Args:
        factory: makes the environments.
        episodes: most episodes per task that `run` will be asked for.
        workers: worker processes, 0 for none.
        max_steps: length of an episode; None for the environment's own limit.
        step_timeout: seconds after which a worker that does not answer counts as hung.
    """

    def __init__(
        self,
        factory: EnvFactory,
        episodes: int,
        *,
        workers: int = 0,
        max_steps: int | None = None,
        step_timeout: float = STEP_TIMEOUT,
    ) -> None:
        self._names = tuple(factory.tasks)
        self._max_steps = max_steps or factory.horizon or _LONGEST
        self._reports_success, self._solved_ends = factory.reports_success, factory.solved_ends
        count = len(self._names)
        self._copies = max(1, min(episodes, EVALUATION_ENVIRONMENTS // count))
        self._task = np.tile(np.arange(count, dtype=np.int32), self._copies)
        self._vector = VectorEnv(
            factory.for_evaluation(), self._task.size, workers=workers, step_timeout=step_timeout
        )

    def run(
        self, act: Act, goals: npt.NDArray[np.int32], interrupted: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """Plays an episode of each task for each goal.

        Args:
            act: the policy.
            goals: see `evaluation_goals`.
            interrupted: called at every step; true aborts the evaluation.

        Returns:
            The result, or None if interrupted.

        Raises:
            WorkerError: a worker died or hangs.
        """
        task, episodes = self._task, len(goals)
        success = np.zeros((len(self._names), episodes), np.bool_)
        returns = np.zeros((len(self._names), episodes))
        lengths = np.zeros((len(self._names), episodes), np.int64)
        episode = np.arange(task.size) // len(self._names)
        active = episode < episodes
        elapsed = np.zeros(task.size, np.int64)
        self._reset(active, episode, goals)
        while active.any():
            if interrupted():
                return None
            command = np.where(active, WorkerCommand.STEP, WorkerCommand.IDLE).astype(np.int8)
            # always all rows: a row's result may depend on the size of the batch in its last bit
            action = act(self._vector.observation, task)
            self._vector.start(Orders(command, task, np.zeros_like(task)), action)
            outcome = self._vector.wait()
            elapsed += active
            playing = np.flatnonzero(active)
            returns[task[playing], episode[playing]] += outcome.reward[playing]
            success[task[playing], episode[playing]] |= outcome.success[playing]
            lengths[task[playing], episode[playing]] += 1
            over = outcome.terminated | outcome.truncated | (elapsed >= self._max_steps)
            ended = active & (over | outcome.success if self._solved_ends else over)
            episode[ended] += self._copies
            elapsed[ended] = 0
            active = episode < episodes
            self._reset(ended & active, episode, goals)
        solved = success if self._reports_success else None
        return Evaluation(self._names, goals.copy(), solved, returns, lengths)

    def close(self) -> None:
        """Ends the workers."""
        self._vector.close()

    def _reset(
        self, which: npt.NDArray[np.bool_], episode: npt.NDArray[np.int_], goals: npt.NDArray[np.int32]
    ) -> None:
        if which.any():
            command = np.where(which, WorkerCommand.RESET, WorkerCommand.IDLE).astype(np.int8)
            self._vector.reset(Orders(command, self._task, goals[episode % goals.size]))


def evaluation_goals(values: Mapping[str, Any], episodes: int) -> npt.NDArray[np.int32]:
    """Returns each episode's goal (episodes,).

    Args:
        values: of the recipe. On Meta-World it names how many of a task's goals its own number of episodes is
            spread over; further episodes go to further goals.
        episodes: of each task.
    """
    if "goals_per_task" not in values:
        return every_goal(values, episodes)
    distinct = values["evaluation_goals"] + max(0, episodes - values["evaluation_episodes"])
    return spread_goals(episodes, distinct, values["goals_per_task"])


def every_goal(values: Mapping[str, Any], episodes: int) -> npt.NDArray[np.int32]:
    """Returns each episode's goal (episodes,), as many different ones as there are."""
    if "goals_per_task" not in values:
        return np.arange(episodes, dtype=np.int32)
    return spread_goals(episodes, values["goals_per_task"], values["goals_per_task"])


def spread_goals(episodes: int, distinct: int, goals_per_task: int) -> npt.NDArray[np.int32]:
    """Returns each episode's goal (episodes,): every k-th of the list, `distinct` of them in turn."""
    count = min(episodes, distinct, goals_per_task)
    picked = np.arange(count) * goals_per_task // count
    return picked[np.arange(episodes) % count].astype(np.int32)
