"""The state of a Meta-World episode as plain values that survive a round trip through JSON bit for bit.

The goal fixes the model, and a reset to that goal fixes everything that is constant during an episode. The
rest is the physics' state and the few attributes that steps change, such as the step count and the last
frame. They are not listed here: they are those bound to a different object than just after the reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco  # type: ignore[import-untyped]
import numpy as np

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
