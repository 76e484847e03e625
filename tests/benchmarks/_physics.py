"""The physics of an environment's steps and nothing else: the time that bit-identity leaves no way around."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from trainer.envs.fast_metaworld import fast_class
from trainer.envs.official import goal_vectors, official_task


class PurePhysics:
    """One task's simulation, replayed with what actions (steps, 4) told its hand and gripper.

    A step is five steps of the physics and a forward pass; the trajectory is the environment's. The physics
    is the official one or ours, which does not mark the bounding volumes that a viewer would draw.
    """

    def __init__(self, task: str, actions: np.ndarray) -> None:
        env = fast_class(task)()
        env.set_task(official_task(task, goal_vectors(task, 50, 42)[0]))
        env.reset()
        self._model, self._data = copy.copy(env.model), env.data  # environments share theirs
        self._spec = mujoco.mjtState.mjSTATE_INTEGRATION
        self._start = np.empty(mujoco.mj_stateSize(self._model, self._spec))
        mujoco.mj_getState(self._model, self._data, self._start, self._spec)
        self._told = []
        for action in actions:
            env.step(action)
            self._told.append((self._data.mocap_pos[0].copy(), self._data.ctrl.copy()))
        self._mocap, self._ctrl = self._data.mocap_pos[0], self._data.ctrl
        self.rewind(official=False)

    def rewind(self, *, official: bool) -> None:
        """Goes back to before the first step, to play the official physics or ours."""
        self._model.vis.global_.bvactive = int(official)
        mujoco.mj_setState(self._model, self._data, self._start, self._spec)

    def step(self, number: int) -> None:
        """Replays a step."""
        self._mocap[:], self._ctrl[:] = self._told[number]
        mujoco.mj_step(self._model, self._data, 5)
        mujoco.mj_forward(self._model, self._data)
