"""Steps MuJoCo's physics between two forward passes without computing anything twice.

An environment's step ends with a forward pass, for the observation, and the next one begins with a physics
step whose first half is a forward pass again, at the same positions and velocities. Only the mocap body
that draws the hand has moved in between. No geom of it collides and no joint hangs on it, so of all that
the pass computes from positions and velocities only the equality constraint changes that ties the hand to
it. The rest, above all the search for contacts, is still there and still right, to the bit.

`DataView` looks up every name of the data once.
"""

from __future__ import annotations

from typing import Any

import mujoco  # type: ignore[import-untyped]
import numpy as np

_VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)


class Physics:
    """Steps a simulation whose hand a mocap body draws.

    Args:
        model: of one mocap body.
        data: of the model.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model = model
        self._data = data
        body = int(np.argmax(model.body_mocapid == 0))
        self._told = memoryview(data.mocap_pos[0])
        self._drawn = memoryview(data.xpos[body])
        self._reusable = _only_draws(model, body)
        self._known = False

    def forget(self) -> None:
        """Call this when anything but `advance` has changed the model or the data."""
        self._known = False

    def advance(self, steps: int) -> None:
        """Does what `mj_step(model, data, steps)` and `mj_forward(model, data)` do.

        Between calls only controls and the mocap body's position may change; otherwise call `forget`.
        """
        model, data = self._model, self._data
        begun = data.time
        if self._known and self._first():
            steps -= 1
        mujoco.mj_step(model, data, steps)
        mujoco.mj_forward(model, data)  # also renews the solver's warm start: not to be replaced by less
        # a simulation that blew up has been reset, the mocap body's orientation included
        self._known = self._reusable and data.time > begun

    def _first(self) -> bool:
        """Does one physics step; False if it could not and nothing has been done."""
        model, data = self._model, self._data
        mujoco.mj_checkPos(model, data)
        mujoco.mj_checkVel(model, data)
        if data.time == 0:  # a simulation that blew up has just been reset by a check
            return False
        self._drawn[:] = self._told
        mujoco.mj_makeConstraint(model, data)
        mujoco.mj_projectConstraint(model, data)
        mujoco.mj_referenceConstraint(model, data)
        mujoco.mj_forwardSkip(model, data, _VELOCITY, 0)
        mujoco.mj_checkAcc(model, data)
        mujoco.mj_Euler(model, data)
        return True


def _only_draws(model: mujoco.MjModel, body: int) -> bool:
    """Whether the mocap body acts by its constraint alone, and a step is no more than what is done here."""
    geoms = model.geom_bodyid == body
    return bool(
        model.nmocap == 1
        and not (model.body_parentid == body).any()
        and not (model.geom_contype[geoms].any() or model.geom_conaffinity[geoms].any())
        and model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
        and model.opt.enableflags == model.nsensor == model.npair == model.ntendon == model.nflex == 0
    )


class BodyPlace:
    """Where a body, geom or site is: its id and live views of its pose."""

    __slots__ = ("id", "xmat", "xpos", "xquat")

    def __init__(self, number: int, xpos: Any, xmat: Any, xquat: Any = None) -> None:
        self.id = number
        self.xpos = xpos
        self.xmat = xmat
        self.xquat = xquat


class JointView:
    """A joint's live views of its position and velocity."""

    __slots__ = ("qpos", "qvel")

    def __init__(self, named: Any) -> None:
        self.qpos = named.qpos
        self.qvel = named.qvel


class DataView:
    """Reads like `mujoco.MjData`; the views by name are made once and stay live.

    Args:
        data: what is looked at; anything not held here is asked of it.
    """

    def __init__(self, data: mujoco.MjData) -> None:
        self._data = data
        self._bodies: dict[str, BodyPlace] = {}
        self._geoms: dict[str, BodyPlace] = {}
        self._sites: dict[str, BodyPlace] = {}
        self._joints: dict[str, JointView] = {}
        self.qpos = data.qpos
        self.qvel = data.qvel
        self.site_xpos = data.site_xpos

    def body(self, name: str) -> BodyPlace:
        """The body of that name."""
        if name not in self._bodies:
            number = self._data.body(name).id
            data = self._data
            self._bodies[name] = BodyPlace(number, data.xpos[number], data.xmat[number], data.xquat[number])
        return self._bodies[name]

    def geom(self, name: str) -> BodyPlace:
        """The geom of that name."""
        if name not in self._geoms:
            number = self._data.geom(name).id
            self._geoms[name] = BodyPlace(number, self._data.geom_xpos[number], self._data.geom_xmat[number])
        return self._geoms[name]

    def site(self, name: str) -> BodyPlace:
        """The site of that name."""
        if name not in self._sites:
            number = self._data.site(name).id
            self._sites[name] = BodyPlace(number, self._data.site_xpos[number], self._data.site_xmat[number])
        return self._sites[name]

    def joint(self, name: str) -> JointView:
        """The joint of that name."""
        if name not in self._joints:
            self._joints[name] = JointView(self._data.joint(name))
        return self._joints[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)
