"""Meta-World as the official package computes it: its classes, its rewards, its lists of goals.

Nothing of the installed package is changed. A class is extended in one respect only: environments of one
class read the model's XML file once a process and copy the parsed model, which makes a second copy of a
task cheap.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import mujoco  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.types import Task

OBSERVATION_DIM = 39
ACTION_DIM = 4
MAX_EPISODE_STEPS = 500
"""The official horizon; the environment refuses a step beyond it."""


class MetaworldEnv:
    """One task with its static list of goals.

    It never terminates: an episode ends when the caller stops it, at `MAX_EPISODE_STEPS` at the latest.

    Args:
        task: Meta-World's full name, such as `reach-v3`.
        goals: the goals' vectors, shape (goals, n) as `goal_vectors` gives them.
    """

    def __init__(self, task: str, goals: npt.NDArray[np.float64]) -> None:
        self._env = _shared_model_class(task)()
        official = ALL_V3_ENVIRONMENTS[task]
        self._tasks = [
            Task(task, pickle.dumps({"rand_vec": goal, "env_cls": official, "partially_observable": False}))
            for goal in goals
        ]

    def reset(self, goal: int) -> npt.NDArray[np.float64]:
        """Starts an episode with the goal of that index and returns the observation, shape (39,)."""
        self._env.set_task(self._tasks[goal])
        observation: npt.NDArray[np.float64] = self._env.reset()[0]
        return observation

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        """Takes an action (4,) in [-1, 1]; returns the observation, the reward, and success at this step."""
        observation, reward, _, _, info = self._env.step(action)
        return observation, float(reward), bool(info["success"])

    @property
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """MuJoCo's model and its current state, for a camera to look at."""
        return self._env.model, self._env.data

    def close(self) -> None:
        """Frees the renderer, if any."""
        self._env.close()


@dataclass(frozen=True)
class MetaworldFactory:
    """Makes the environments of a list of tasks; small enough to be sent to a worker process.

    Attributes:
        tasks: full task names; a task's id is its place.
        goal_seed: seed of the goal lists.
        goals_per_task: length of a goal list.
    """

    tasks: tuple[str, ...]
    goal_seed: int = 42
    goals_per_task: int = 50

    observation_dim: ClassVar[int] = OBSERVATION_DIM
    action_dim: ClassVar[int] = ACTION_DIM

    def __call__(self, task: int) -> MetaworldEnv:
        """Builds an environment of the task with that id."""
        name = self.tasks[task]
        return MetaworldEnv(name, goal_vectors(name, self.goals_per_task, self.goal_seed))


@cache
def goal_vectors(task: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """Returns the first `count` goals of a task, shape (count, n): those of `metaworld.MT1(task, seed=seed)`.

    The official package draws a goal in each of 50 resets, with the global random state, and simulates
    the hand's way to its start each time. The draws do not depend on the hand, so that part is left out
    here. Every seed means something, 0 included, and the global random state is left as it was.
    """
    env = _shared_model_class(task)()
    env._freeze_rand_vec = False
    env._set_task_called = True
    env.skip_hand_simulation = True
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        goals = []
        for _ in range(count):
            env.reset()
            goals.append(env._last_rand_vec)
    finally:
        np.random.set_state(state)
        env.close()
    return np.array(goals)


_parsed: dict[str, mujoco.MjModel] = {}


@cache
def _shared_model_class(task: str) -> Any:
    """Returns the official class, extended to share parsed models and to skip the hand's way if asked to."""
    official: Any = ALL_V3_ENVIRONMENTS[task]

    class SharedModel(official):  # type: ignore[misc]
        skip_hand_simulation = False

        def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
            if self.fullpath not in _parsed:
                _parsed[self.fullpath] = super()._initialize_simulation()[0]
            model = copy.copy(_parsed[self.fullpath])
            return model, mujoco.MjData(model)

        def _reset_hand(self, *args: Any, **kwargs: Any) -> None:
            if not self.skip_hand_simulation:
                super()._reset_hand(*args, **kwargs)
                return
            mujoco.mj_forward(self.model, self.data)
            self.init_tcp = self.tcp_center

    return SharedModel
