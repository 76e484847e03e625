"""Meta-World's classes as installed, extended so that a second copy of a task is cheap.

The installed package is not modified. Environments whose model is the same XML file read it once a process
and share what was read, and a reset can skip its slow parts when only its random draws are wanted.

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


class SharedModel:
    """A parsed model, 21 MB, that environments use in turn.

    Of a model a goal changes the positions of a body and a site and nothing else. So each environment has
    positions of its own, which lie in the model while it is the one that uses it. The environments of one
    process belong to one thread.

    Args:
        model: as parsed.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        # a viewer's flags of 134,000 volumes, cleared in each pass: an eighth of the physics
        model.vis.global_.bvactive = 0
        self.model = model
        self._now = [memoryview(array).cast("B") for array in (model.body_pos, model.site_pos)]
        self._parsed = self._users = [bytearray(array) for array in self._now]

    def own_copy(self) -> SharedModel:
        """Returns the model as parsed, for an environment that shares it with no other."""
        return SharedModel(copy.copy(self.use(self._parsed)))

    def positions(self) -> list[bytearray]:
        """Returns the positions of a new environment, for `use`."""
        return [array.copy() for array in self._parsed]

    def use(self, positions: list[bytearray]) -> mujoco.MjModel:
        """Returns the model with the positions of an environment in it, until another one uses it."""
        if self._users is not positions:
            for now, last, wanted in zip(self._now, self._users, positions, strict=True):
                last[:] = now
                now[:] = wanted
            self._users = positions
        return self.model


_parsed: dict[str, SharedModel] = {}


@cache
def official_class(task: str, shares_model: bool = True) -> Any:
    """Returns the official class, extended to share parsed models and, if asked, only draw in a reset."""
    official: Any = ALL_V3_ENVIRONMENTS[task]

    class Extended(official):  # type: ignore[misc]
        only_draws = False
        """Skip the parts of a reset that its draws do not depend on: the hand's path and the observation."""

        @property
        def model(self) -> mujoco.MjModel:
            """The model, which others may share, with this environment's positions in it."""
            return self._shared.use(self._positions)

        @model.setter
        def model(self, _model: mujoco.MjModel) -> None:
            """Takes no notice: the official class keeps what `_initialize_simulation` returned."""

        def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
            if self.fullpath not in _parsed:
                _parsed[self.fullpath] = SharedModel(super()._initialize_simulation()[0])
            shared = _parsed[self.fullpath]
            self._shared = shared if shares_model else shared.own_copy()
            self._positions = self._shared.positions()
            return self.model, mujoco.MjData(self.model)

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

    return Extended


def model_file(task: str) -> str:
    """Returns the path of the model's XML file, which a class of Meta-World knows before it is made."""
    path: str = ALL_V3_ENVIRONMENTS[task].model_name.fget(None)
    return path


def forget_model(task: str) -> None:
    """Has the task's model read anew for the next environment: those who share it may have spoilt it."""
    _parsed.pop(model_file(task), None)


@lru_cache(maxsize=1)
def scratch_environment(task: str) -> Any:
    """Returns an official environment with its own model; the last one is kept, so that it is made once."""
    return official_class(task, shares_model=False)()


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
