"""The state of a Gymnasium episode as plain values that survive a round trip through JSON bit for bit.

Gymnasium has no interface for this, so the state is read from outside: all attributes of the environment and
its wrappers that are plain data or random generators, and MuJoCo's whole state. That suffices for classic
control, MuJoCo and toy-text environments and for many of a user's own, but not for those that keep state in
a compiled library. Sufficiency is never assumed: `fault` plays an episode and compares.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.envs.faults import fault_of
from trainer.envs.interface import OWN_CHOICE, Env

_PLAYED = (25, 1, 2, 7)
"""Steps before each comparison: short episodes should not all have just begun."""
_COMPARED = 25
"""Steps that an episode put back is compared for."""


class NotPlain(Exception):  # noqa: N818 - no fault, an answer
    """A value is not plain data."""


class Taken(Env, Protocol):
    """What `fault` looks at."""

    def take(self) -> dict[str, Any]:
        """Returns the state of the episode, whether or not it could be restored."""

    def close(self) -> None:
        """Frees what the environment holds."""


class Snapshots:
    """Takes and restores the state of one environment.

    Args:
        env: just made, not yet reset: what it holds now need not be written down.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._made = [dict(_plain_attributes(layer)) for layer in _layers(env)]

    def take(self) -> dict[str, Any]:
        """Returns the state of the episode, for JSON."""
        layers = [
            {name: value for name, value in _plain_attributes(layer) if made.get(name) != value}
            for layer, made in zip(_layers(self._env), self._made, strict=True)
        ]
        physics = _simulation(self._env)
        return {"layers": layers} | ({} if physics is None else {"physics": _physics(*physics)})

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Continues where `take` was, in an environment of the same kind that has been reset."""
        if (physics := _simulation(self._env)) is not None:
            _put_physics(*physics, state["physics"])
        for layer, made, changed in zip(_layers(self._env), self._made, state["layers"], strict=True):
            for name, value in {**made, **changed}.items():
                vars(layer)[name] = decoded(value)


def fault(make: Callable[[], Taken], action: Callable[[], npt.NDArray[np.float32]]) -> str:
    """Plays an episode, continues a copy of it, and compares; returns what differs, or nothing.

    Args:
        make: makes an environment.
        action: draws a row.
    """
    original, copy = make(), make()
    try:
        original.reset(0)
        for played in _PLAYED:
            for _ in range(played):
                _step(original, action())
            copy.restore(played, json.loads(json.dumps(original.take())))
            for _ in range(_COMPARED):
                row = action()
                if _step(original, row) != _step(copy, row):
                    return "an episode put back goes another way"
            if original.reset(OWN_CHOICE).tobytes() != copy.reset(OWN_CHOICE).tobytes():
                return "the episode after one put back is another"
        return ""
    except (Exception, SystemExit) as error:  # of somebody else's code, in a use it was not made for
        return fault_of(error).cause
    finally:
        original.close()
        copy.close()


def _step(env: Taken, row: npt.NDArray[np.float32]) -> tuple[Any, ...]:
    """Steps, and starts another episode where one ended; returns all that was to be seen."""
    observation, reward, success = env.step(row)
    seen = observation.tobytes(), reward, success, env.terminated, env.truncated
    over = env.terminated or env.truncated
    return (*seen, env.reset(OWN_CHOICE).tobytes() if over else b"")


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers from outside in, and the environment itself."""
    while env is not env.unwrapped:
        yield env
        env = env.env
    yield env


def _plain_attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(layer).items():
        if name != "env":
            try:
                yield name, encoded(value)
            except NotPlain:
                continue


def encoded(value: Any) -> Any:
    """Returns plain data as JSON has it, with its type where JSON has none for it.

    Raises:
        NotPlain: it is something else.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc":
        text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {
            "is": "array",
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "bytes": text,
            "scalar": isinstance(value, np.generic),
        }
    if isinstance(value, np.random.Generator):
        return {"is": "generator", "state": encoded(value.bit_generator.state)}
    if type(value) is list:
        return [encoded(item) for item in value]
    if type(value) is tuple:
        return {"is": "tuple", "items": [encoded(item) for item in value]}
    if type(value) is deque:
        return {"is": "deque", "items": [encoded(item) for item in value], "most": value.maxlen}
    if type(value) is dict:
        return {"is": "dict", "items": [[encoded(key), encoded(item)] for key, item in value.items()]}
    raise NotPlain


def decoded(value: Any) -> Any:
    """Returns what `encoded` was given."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value["is"]
    if kind == "array":
        flat = np.frombuffer(base64.b64decode(value["bytes"]), np.dtype(value["dtype"]))
        array = flat.reshape(value["shape"]).copy()
        return array[()] if value["scalar"] else array
    if kind == "generator":
        state = decoded(value["state"])
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)
    if kind == "dict":
        return {decoded(key): decoded(item) for key, item in value["items"]}
    items = [decoded(item) for item in value["items"]]
    return tuple(items) if kind == "tuple" else deque(items, value["most"])


def _simulation(env: Any) -> tuple[Any, Any] | None:
    """MuJoCo's model and state in the environment, if it has them."""
    mujoco = sys.modules.get("mujoco")
    model, data = getattr(env.unwrapped, "model", None), getattr(env.unwrapped, "data", None)
    if mujoco is None or not isinstance(data, mujoco.MjData) or not isinstance(model, mujoco.MjModel):
        return None
    return model, data


def _physics(model: Any, data: Any) -> dict[str, Any]:
    import mujoco  # type: ignore[import-untyped]

    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    return {"state": encoded(state), "derived": {name: encoded(array) for name, array in _derived(data)}}


def _put_physics(model: Any, data: Any, physics: Mapping[str, Any]) -> None:
    import mujoco

    state = decoded(physics["state"])
    mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)  # it renewed the warm start
    for name, array in _derived(data):
        array[...] = decoded(physics["derived"][name])


def _derived(data: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """What a step leaves behind for whoever looks before the next one, such as the places of the bodies.

    It belongs to the positions before the last piece of the step, so it cannot be computed again. Rewards
    are made of it.
    """
    for name in dir(data):
        array = getattr(data, name) if not name.startswith(("_", "efc_", "iefc_", "contact")) else None
        if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.size:
            yield name, array
