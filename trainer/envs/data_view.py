"""MuJoCo's data with every name looked up once."""

from __future__ import annotations

from typing import Any

import mujoco  # type: ignore[import-untyped]


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
