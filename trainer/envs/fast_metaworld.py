"""Meta-World's environments, bit-identical, without the official code's overhead around the physics.

A fast class is the official class of a task with three things changed. Its methods are copies that find
quicker helpers under their module-level names (`fast_helpers`, `rebinding`). Named parts of the simulation
are looked up once (`data_view`). And what has no effect is left out: inverse dynamics that nobody reads,
the re-positioning of a site that the next line computes again, the half of a physics step that the forward
pass before it has done already (`physics`), and the first of a reset's two simulations of the hand's way to
its start; of the second the outcome is remembered (`starts`). The installed package is untouched.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any

import mujoco  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from gymnasium.envs.mujoco import MujocoEnv
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from trainer.envs.fast_helpers import caging_reward, replacements
from trainer.envs.official import official_class
from trainer.envs.physics import DataView, Physics
from trainer.envs.rebinding import Rebinding

_FRAME = 18
"""Numbers of one frame: hand (3), gripper (1), objects (14)."""
_FLOATS = struct.Struct("3f")
_DOWN = np.array([1.0, 0.0, 1.0, 0.0])
"""The hand's orientation, a quaternion; MuJoCo normalises it."""
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


@cache
def fast_class(task: str) -> Any:
    """Returns the fast class of a task."""
    official: Any = ALL_V3_ENVIRONMENTS[task]
    rebinding = Rebinding(official, replacements())
    methods = rebinding.methods(leave=lambda name: name in ("__init__", "_get_obs_dict"))
    made = type(f"Fast{official.__name__}", (_Fast, official_class(task)), methods | {"starts": {}})
    rebinding.bind(made)
    return made


class _Fast:
    """The methods of a fast class that override the official class."""

    starts: dict[bytes, npt.NDArray[np.float64]]
    """By what the hand's way depends on: the physics' state one step before its end."""
    way_depends_on_goal = True
    """False where one way is known to be right for all goals that this environment is to play."""
    model: mujoco.MjModel
    data: Any
    _hand: npt.NDArray[np.float64]
    init_tcp: npt.NDArray[np.float64]
    obj_init_pos: npt.NDArray[np.float64]

    _gripper_caging_reward = caging_reward

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        model, data = super()._initialize_simulation()  # type: ignore[misc]
        self._real = data
        self._view = DataView(data)
        self._physics = Physics(model, data)
        # single numbers go in and out of a memoryview several times sooner than of an array
        self._mocap_pos = memoryview(data.mocap_pos[0])
        self._mocap_quat = memoryview(data.mocap_quat[0])
        self._ctrl = memoryview(data.ctrl)
        self._hand = self._view.body("hand").xpos
        self._claws = self._view.body("rightclaw").xpos, self._view.body("leftclaw").xpos
        self._fingers = self._view.site("rightEndEffector").xpos, self._view.site("leftEndEffector").xpos
        self._pads = self._view.geom("leftpad_geom").id, self._view.geom("rightpad_geom").id
        self._state_size = mujoco.mj_stateSize(model, _STATE)
        self._pass_hand = False
        return model, data

    def step(self: Any, action: npt.NDArray[np.floating[Any]]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes an action (4,); returns observation (39,), reward, False, truncation and info."""
        self.begin(action)
        return self.end(action)  # type: ignore[no-any-return]

    def begin(self: Any, action: npt.NDArray[np.floating[Any]]) -> None:
        """Does the physics of a step; `end` must follow."""
        assert len(action) == 4, f"Actions should be size 4, got {len(action)}"
        if self.curr_path_length >= self.max_path_length:
            raise ValueError("You must reset the env manually once truncate==True")
        self._shared.use(self._positions)
        self._tell(action)
        self._physics.advance(self.frame_skip)
        self.curr_path_length += 1

    def end(self: Any, action: npt.NDArray[np.floating[Any]]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Returns what the step that `begin` began with that action comes to, as `step` does."""
        self.data = self._view
        try:
            observation = np.zeros(2 * _FRAME + 3)
            self._write_frame(observation)
            observation[_FRAME : 2 * _FRAME] = self._prev_obs
            if not self._partially_observable:
                observation[2 * _FRAME :] = self._get_pos_goal()
            self._prev_obs = observation[:_FRAME].copy()
            space = self.sawyer_observation_space
            np.minimum(np.maximum(observation, space.low, out=observation), space.high, out=observation)
            reward, info = self.evaluate_state(observation, action)
        finally:
            self.data = self._real
        return observation, reward, False, self.curr_path_length == self.max_path_length, info

    def _tell(self: Any, action: npt.NDArray[np.floating[Any]]) -> None:
        """Moves what draws the hand, and sets the gripper, as the action (4,) wants it."""
        taken = np.asarray(action)
        single = taken.dtype == np.float32
        *moves, grip = taken.tolist()
        scale = float(np.float32(self.action_scale)) if single else self.action_scale
        moves = [scale * (-1.0 if move < -1.0 else 1.0 if move > 1.0 else move) for move in moves]
        if single:  # products of float32 are rounded to float32
            moves = _FLOATS.unpack(_FLOATS.pack(*moves))
        low, high, position = self.mocap_low.tolist(), self.mocap_high.tolist(), self._mocap_pos
        for axis in (0, 1, 2):
            to = position[axis] + moves[axis]
            position[axis] = low[axis] if to < low[axis] else high[axis] if to > high[axis] else to
        self._mocap_quat[:] = _DOWN.data
        ctrl = self._ctrl
        ctrl[0] = grip
        ctrl[1] = -grip

    def reset(
        self: Any,
        seed: int | None = None,  # noqa: ARG002 - as in the official class
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Starts an episode; a seed and options are ignored, as in the official class."""
        self.curr_path_length = 0
        self._physics.forget()
        self._pass_hand = True  # the data are reset before the second pass: only its model is needed
        try:
            self.reset_model()
        finally:
            self._pass_hand = False
        observation, info = MujocoEnv.reset(self)
        self._prev_obs = observation[:_FRAME].copy()
        observation[_FRAME : 2 * _FRAME] = self._prev_obs
        return observation, info

    def _reset_hand(self: Any, steps: int = 50) -> None:
        """Brings the hand to its start, by simulation or from memory.

        What is remembered is the state before the last step, which is then simulated: so everything that
        is derived from the state is there as well.
        """
        if not self._pass_hand:
            model, data = self.model, self._real
            state = np.empty(self._state_size)
            mujoco.mj_getState(model, data, state, _STATE)
            start = np.asarray(self.hand_init_pos, np.float64)
            # of the model a task changes positions only, and those of sites move nothing
            moved = model.body_pos.tobytes() if self.way_depends_on_goal else b""
            key = b"".join((state.tobytes(), moved, start.tobytes(), bytes([steps])))
            start_state = self.starts.get(key)
            if start_state is None:
                self._mocap_pos[:] = start.data
                self._mocap_quat[:] = _DOWN.data
                self._ctrl[0], self._ctrl[1] = -1.0, 1.0
                mujoco.mj_step(model, data, steps * self.frame_skip - 1)
                mujoco.mj_getState(model, data, state, _STATE)
                self.starts[key] = state
            else:
                mujoco.mj_setState(model, data, start_state, _STATE)
            mujoco.mj_step(model, data)
        self.init_tcp = self.tcp_center

    def _get_curr_obs_combined_no_goal(self) -> npt.NDArray[np.float64]:
        frame = np.zeros(_FRAME)
        self._write_frame(frame)
        return frame

    def _write_frame(self: Any, out: npt.NDArray[np.float64]) -> None:
        """Writes hand, gripper and objects into the first numbers of `out`, which are zero."""
        out[0:3] = self._hand
        right, left = self._claws
        between = right - left
        apart = math.sqrt(between.dot(between)) / 0.1
        out[3] = 0.0 if apart < 0.0 else 1.0 if apart > 1.0 else apart
        positions, quaternions = self._get_pos_objects(), self._get_quat_objects()
        objects = len(positions) // 3
        if objects == 1:
            out[4:7] = positions
            out[7:11] = quaternions
            return
        for number in range(objects):
            at = 4 + 7 * number
            out[at : at + 3] = positions[3 * number : 3 * number + 3]
            out[at + 3 : at + 7] = quaternions[4 * number : 4 * number + 4]

    def get_endeff_pos(self) -> npt.NDArray[np.float64]:
        """Where the hand is, shape (3,); live."""
        return self._hand

    def get_body_com(self, body_name: str) -> npt.NDArray[np.float64]:
        """Where the body is, shape (3,); live."""
        position: npt.NDArray[np.float64] = self._view.body(body_name).xpos
        return position

    @property
    def tcp_center(self) -> npt.NDArray[np.float64]:
        """The middle between the two fingers, shape (3,)."""
        right, left = self._fingers
        middle: npt.NDArray[np.float64] = (right + left) / 2.0
        return middle

    def _get_site_pos(self, site_name: str) -> npt.NDArray[np.float64]:
        position: npt.NDArray[np.float64] = self._view.site(site_name).xpos.copy()
        return position

    def touching_object(self, object_geom_id: int) -> bool:
        """Whether both pads of the gripper press on the geom with that id."""
        data = self._real
        if data.ncon == 0:
            return False
        contact = data.contact
        at_object = [
            (pair, number) for number, pair in enumerate(contact.geom.tolist()) if object_geom_id in pair
        ]
        left, right = ([number for pair, number in at_object if pad in pair] for pad in self._pads)
        if not (left and right):
            return False
        force, address = data.efc_force, contact.efc_address.tolist()
        return bool(
            sum(force[address[number]] for number in left) > 0
            and sum(force[address[number]] for number in right) > 0
        )
