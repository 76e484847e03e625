"""Meta-World's classes as installed, extended so that a second copy of a task is cheap.

The installed package is not modified. Environments of one class read the model's XML file once a process and
copy the parsed model, and a reset can skip its slow parts when only its random draws are wanted.

A hand reaches its start by the same path for every goal if the goal moves nothing that the hand or a loose
object meets on the way: then the physics is bit-identical, and simulating the path for one goal is enough.
"""

from __future__ import annotations

import copy
import pickle
from functools import cache, lru_cache
from typing import Any

import mujoco  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.types import Task

from trainer.recipe.environments import FIXED_GOALS

_parsed: dict[str, mujoco.MjModel] = {}


@cache
def official_class(task: str) -> Any:
    """Returns the official class, extended to share parsed models and, if asked, only draw in a reset."""
    official: Any = ALL_V3_ENVIRONMENTS[task]

    class SharedModel(official):  # type: ignore[misc]
        only_draws = False
        """Skip the parts of a reset that its draws do not depend on: the hand's path and the observation."""

        def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
            if self.fullpath not in _parsed:
                parsed = super()._initialize_simulation()[0]
                # a viewer's flags of 134,000 volumes, cleared in each pass: an eighth of the physics
                parsed.vis.global_.bvactive = 0
                _parsed[self.fullpath] = parsed
            model = copy.copy(_parsed[self.fullpath])
            return model, mujoco.MjData(model)

        def begin(self, action: npt.NDArray[Any]) -> None:
            self._stepped = self.step(action)

        def end(self, _action: npt.NDArray[Any]) -> Any:
            return self._stepped

        def _reset_hand(self, *args: Any, **kwargs: Any) -> None:
            if not self.only_draws:
                super()._reset_hand(*args, **kwargs)
                return
            mujoco.mj_forward(self.model, self.data)
            self.init_tcp = self.tcp_center

        def _get_curr_obs_combined_no_goal(self) -> npt.NDArray[np.float64]:
            if self.only_draws:
                return np.zeros(18)
            frame: npt.NDArray[np.float64] = super()._get_curr_obs_combined_no_goal()
            return frame

    return SharedModel


def model_file(task: str) -> str:
    """Returns the path of the model's XML file, which a class of Meta-World knows before it is made."""
    path: str = ALL_V3_ENVIRONMENTS[task].model_name.fget(None)
    return path


@lru_cache(maxsize=1)
def scratch_environment(task: str) -> Any:
    """Returns an official environment to try things in; the last one is kept, so that it is made once."""
    return official_class(task)()


def official_task(task: str, goal: npt.NDArray[np.float64]) -> Task:
    """Returns what `set_task` wants: the goal's vector, fully observable."""
    official = ALL_V3_ENVIRONMENTS[task]
    return Task(task, pickle.dumps({"rand_vec": goal, "env_cls": official, "partially_observable": False}))


@cache
def goal_vectors(task: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """Returns the first `count` goals of a task, shape (count, n): those of `metaworld.MT1(task, seed=seed)`.

    The official package draws a goal in each of 50 resets, with the global random state, and simulates
    the hand's way to its start each time. The draws do not depend on the hand, so that part is left out
    here. Every seed counts, 0 included, and the global random state is left unchanged.
    """
    env = scratch_environment(task)
    env._freeze_rand_vec = False  # until the next `set_task`
    env._set_task_called = True
    env.only_draws = True
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        goals = []
        for _ in range(count):
            env.reset()
            goals.append(env._last_rand_vec)
    finally:
        np.random.set_state(state)
        env.only_draws = False
    return np.array(goals)


STANDARD = {"count": 50, "seed": FIXED_GOALS}
"""The goal list that nearly every run uses."""
_SAME_WAY = frozenset(
    {
        "assembly-v3",
        "basketball-v3",
        "button-press-topdown-v3",
        "button-press-topdown-wall-v3",
        "button-press-v3",
        "button-press-wall-v3",
        "coffee-button-v3",
        "coffee-pull-v3",
        "coffee-push-v3",
        "dial-turn-v3",
        "door-close-v3",
        "door-open-v3",
        "drawer-close-v3",
        "drawer-open-v3",
        "faucet-close-v3",
        "faucet-open-v3",
        "peg-insert-side-v3",
        "plate-slide-v3",
        "shelf-place-v3",
        "soccer-v3",
        "window-close-v3",
        "window-open-v3",
    }
)
"""Found by simulating the path for each goal of the standard list, as a test does again. Of the other tasks
ten have a different path for each goal, and 18 move nothing before the hand has arrived."""


def way_depends_on_goal(task: str, goals: npt.NDArray[np.float64]) -> bool:
    """Returns False if all of these goals, shape (goals, n), are known to have the same path."""
    if task not in _SAME_WAY:
        return True
    standard = goal_vectors(task, **STANDARD)
    return not np.array_equal(goals, standard[: len(goals)])
