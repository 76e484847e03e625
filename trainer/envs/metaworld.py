"""Meta-World with the official package's rewards and goal lists, stepped faster.

The relative time of a step of each task, by which workers get equal shares, is measured and shipped: the
environments are assigned before any of them is made, and the same way each time. Only the ratios matter,
which differ little between processors.

The state of an episode is plain values that survive a round trip through JSON bit for bit. The goal fixes the
model, and a reset to that goal fixes everything that is constant during an episode. The rest is the physics'
state and the few attributes that steps change, such as the step count and the last frame. They are not listed
here: they are those bound to a different object than just after the reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import mujoco  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from trainer.envs.official import goal_vectors, model_file, official_task, way_depends_on_goal
from trainer.envs.self_check import environment_class
from trainer.envs.spaces import ActionSpace, unit_box
from trainer.recipe.environments import FIXED_GOALS

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

    Attributes:
        note: empty, or why the environment is slower than it could be.
        terminated: never.
        truncated: never.
    """

    terminated: ClassVar[bool] = False
    truncated: ClassVar[bool] = False

    def __init__(self, task: str, goals: npt.NDArray[np.float64]) -> None:
        made, self.note = environment_class(task)
        self._env = made()
        self._env.way_depends_on_goal = way_depends_on_goal(task, goals)
        self._tasks = [official_task(task, goal) for goal in goals]

    def reset(self, goal: int) -> npt.NDArray[np.float64]:
        """Starts an episode with the goal of that index and returns the observation, shape (39,)."""
        self._env.set_task(self._tasks[goal])
        observation: npt.NDArray[np.float64] = self._env.reset()[0]
        self._at_reset = bindings(self._env)
        return observation

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        """Takes an action (4,) in [-1, 1]; returns the observation, the reward, and success at this step."""
        self.begin(action)
        return self.end(action)

    def begin(self, action: npt.NDArray[np.float32]) -> None:
        """Does the physics of a step; `end` must follow."""
        self._env.begin(action)

    def end(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        """Returns what `step` does, of the step that `begin` began with the same action."""
        observation, reward, _, _, info = self._env.end(action)
        return observation, float(reward), bool(info["success"])

    def state(self) -> dict[str, Any]:
        """Returns the state of the episode, for JSON; only after a reset."""
        return taken(self._env, self._at_reset)

    def restore(self, goal: int, state: Mapping[str, Any]) -> None:
        """Continues an episode with the goal of that index, to the bit, in either class of the task."""
        self.reset(goal)
        put_back(self._env, state)

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
        episode_steps: planned length of the episodes of training.
    """

    tasks: tuple[str, ...]
    goal_seed: int = FIXED_GOALS
    goals_per_task: int = 50
    episode_steps: int = MAX_EPISODE_STEPS

    observation_dim: ClassVar[int] = OBSERVATION_DIM
    action_dim: ClassVar[int] = ACTION_DIM
    action_space: ClassVar[ActionSpace] = unit_box(ACTION_DIM)
    horizon: ClassVar[int] = MAX_EPISODE_STEPS
    reports_success: ClassVar[bool] = True
    step_seconds: ClassVar[float] = 3e-4
    solved_ends: ClassVar[bool] = True

    def cost(self, task: int) -> float:
        """Relative time of a step of that task."""
        return STEP_COSTS[self.tasks[task]]

    def model(self, task: int) -> str:
        """The file of the model of that task, which several tasks may share."""
        return model_file(self.tasks[task])

    def for_evaluation(self) -> Self:
        """Returns itself: evaluations name the goals they play."""
        return self

    def __call__(self, task: int) -> MetaworldEnv:
        """Builds an environment of the task with that id."""
        name = self.tasks[task]
        return MetaworldEnv(name, goal_vectors(name, count=self.goals_per_task, seed=self.goal_seed))


STEP_COSTS = {
    "assembly-v3": 108,
    "basketball-v3": 88,
    "bin-picking-v3": 109,
    "box-close-v3": 145,
    "button-press-topdown-v3": 86,
    "button-press-topdown-wall-v3": 88,
    "button-press-v3": 114,
    "button-press-wall-v3": 82,
    "coffee-button-v3": 101,
    "coffee-pull-v3": 130,
    "coffee-push-v3": 120,
    "dial-turn-v3": 82,
    "disassemble-v3": 118,
    "door-close-v3": 79,
    "door-lock-v3": 78,
    "door-open-v3": 89,
    "door-unlock-v3": 83,
    "hand-insert-v3": 114,
    "drawer-close-v3": 83,
    "drawer-open-v3": 75,
    "faucet-open-v3": 85,
    "faucet-close-v3": 75,
    "hammer-v3": 119,
    "handle-press-side-v3": 87,
    "handle-press-v3": 98,
    "handle-pull-side-v3": 99,
    "handle-pull-v3": 77,
    "lever-pull-v3": 80,
    "pick-place-wall-v3": 121,
    "pick-out-of-hole-v3": 95,
    "pick-place-v3": 114,
    "plate-slide-v3": 84,
    "plate-slide-side-v3": 96,
    "plate-slide-back-v3": 78,
    "plate-slide-back-side-v3": 92,
    "peg-insert-side-v3": 102,
    "peg-unplug-side-v3": 119,
    "soccer-v3": 103,
    "stick-push-v3": 159,
    "stick-pull-v3": 166,
    "push-v3": 107,
    "push-wall-v3": 119,
    "push-back-v3": 96,
    "reach-v3": 74,
    "reach-wall-v3": 73,
    "shelf-place-v3": 99,
    "sweep-into-v3": 149,
    "sweep-v3": 106,
    "window-open-v3": 74,
    "window-close-v3": 81,
}
"""Relative time of a step of the fast class, 100 on average: the mean over random actions and the scripted
policy's, which touch things; a policy in training is between the two. Measured five tasks to a process."""


_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
"""All that the coming steps of the physics depend on, the solver's warm start included."""


def bindings(env: Any) -> dict[str, Any]:
    """Returns what the environment's attributes are bound to, to be compared with later."""
    return dict(vars(env))


def taken(env: Any, at_reset: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of the episode.

    Args:
        env: an environment of Meta-World, between two steps.
        at_reset: its `bindings` after the reset that began the episode.
    """
    state = np.empty(mujoco.mj_stateSize(env.model, _STATE))
    mujoco.mj_getState(env.model, env.data, state, _STATE)
    missing = object()
    rebound = {
        name: _plain(value)
        for name, value in vars(env).items()
        if value is not at_reset.get(name, missing) and _is_simple(value)
    }
    return {"physics": state.tolist(), "attributes": rebound}


def put_back(env: Any, state: Mapping[str, Any]) -> None:
    """Continues an episode where `taken` found it.

    Args:
        env: an environment of the same task, just reset to the same goal.
        state: what `taken` returned.
    """
    physics = np.array(state["physics"], np.float64)
    mujoco.mj_setState(env.model, env.data, physics, _STATE)
    mujoco.mj_forward(env.model, env.data)  # positions of all parts, for whoever looks before the next step
    mujoco.mj_setState(env.model, env.data, physics, _STATE)  # the line above renewed the warm start
    for name, value in state["attributes"].items():
        setattr(env, name, _rebuilt(value))


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | np.generic | np.ndarray)


def _plain(value: Any) -> Any:
    """A simple value for JSON; numpy's keep their type, on which the bits of a reward depend."""
    if isinstance(value, np.generic | np.ndarray):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": value.reshape(-1).tolist()}
    return value


def _rebuilt(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    array = np.array(value["values"], np.dtype(value["dtype"])).reshape(value["shape"])
    return array if value["shape"] else array[()]
