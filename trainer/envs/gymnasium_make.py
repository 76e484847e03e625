"""Makes and tries a Gymnasium environment; any fault becomes a one-line error."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from trainer.arguments import nearest
from trainer.envs.faults import fault_of
from trainer.errors import UsageError
from trainer.recipe.environments import split_environment

_TRIAL_STEPS = 100
_STEP = ("observation", "reward", "terminated", "truncated", "info")
_RENAME = "give your package of that name another one, or keep the environment outside of it"


def made(name: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Makes an environment.

    Args:
        name: as `trainer.recipe.environments.split_environment` reads it.
        render_mode: as `gymnasium.make` has it.

    Raises:
        UsageError: it is unknown, or cannot be made here.
    """
    identity, arguments = split_environment(name)
    module, colon, _rest = identity.partition(":")
    if colon and module.partition(".")[0] == "trainer":
        raise UsageError(
            f"the module {module} of {name} is not found: `trainer` is the name of the trainer's own package",
            hint=_RENAME,
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a newer version: what was asked for is asked for
            # the checker looks at every step's types, for a third of the time of a small environment's step
            mode: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
            return gymnasium.make(identity, disable_env_checker=True, **mode, **arguments)
    except gymnasium.error.UnregisteredEnv as error:
        registered = [*gymnasium.registry]
        close = nearest(identity.rpartition(":")[2], registered)
        raise UsageError(
            f"there is no environment {name!r}{close or f': {error}'}",
            hint="choose one that python -c 'import gymnasium; gymnasium.pprint_registry()' lists, or "
            "module:EnvId, where importing the module registers it",
        ) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise UsageError(f"{name} needs a package: {error}") from error
    except ImportError as error:
        what = f"the module {module} of {name} cannot be imported" if colon else f"{name} cannot be made here"
        raise UsageError(
            f"{what}: {str(error).splitlines()[0]}",
            hint=_import_hint(error) if colon else None,
        ) from error
    except (Exception, SystemExit) as error:  # of somebody else's code
        fault = fault_of(error)
        raise UsageError(f"{name!r} cannot be made: {fault.cause}", hint=fault.where) from error


def _import_hint(error: ImportError) -> str:
    first = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # Gymnasium says it anew
    of_trainer = (first.name or "").partition(".")[0] == "trainer"
    return _RENAME if of_trainer else "start in the folder of the module, or install it"


def tried(
    env: gymnasium.Env[Any, Any],
    name: str,
    act: Callable[[], Any],
    read: Callable[[Any], npt.NDArray[Any]],
) -> tuple[bool, float]:
    """Plays an episode's beginning.

    Args:
        env: just made.
        name: of the environment, for the message.
        act: draws an action.
        read: flattens an observation.

    Returns:
        Whether the environment reports success, and the seconds within which most steps finish.

    Raises:
        UsageError: the environment fails, contradicts its declared spaces, or returns what Gymnasium's
            interface does not have.
    """
    speaks, seconds = False, []
    try:
        read(_parts(env.reset(seed=0), "reset", ("observation", "info"))[0])
        for _ in range(_TRIAL_STEPS):
            begun = perf_counter()
            parts = _parts(env.step(act()), "step", _STEP)
            observation, reward, terminated, truncated, info = parts
            ends = _truth(terminated, "terminated") or _truth(truncated, "truncated")
            if not math.isfinite(number_of(reward)):
                raise ValueError(f"a reward is {reward!r}")
            speaks = success_of(info) is not None or speaks
            read(observation)
            seconds.append(perf_counter() - begun)
            if ends:
                break
    except (Exception, SystemExit) as error:  # of somebody else's code
        fault = fault_of(error)
        raise UsageError(f"{name} fails in its first steps: {fault.cause}", hint=fault.where) from error
    return speaks, statistics.median(seconds)


def number_of(reward: Any) -> float:
    """Returns a reward as a float.

    Raises:
        TypeError: it is not one number.
    """
    if isinstance(reward, float):  # as most are; NumPy's float64 is one
        return reward
    if isinstance(reward, str | bytes) or reward is None or np.ndim(reward):
        raise TypeError(f"a reward is {reward!r}, not one number")
    return float(reward)


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Returns the success in an environment's info; None if there is none.

    Raises:
        TypeError: it is neither true nor false.
    """
    name = "is_success" if "is_success" in info else "success"
    value = info.get(name)
    return None if value is None else _truth(value, f"info[{name!r}]")


def _truth(value: Any, name: str) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str | bytes) or np.ndim(value) or value not in (0, 1):
        raise TypeError(f"{name} is {value!r}, neither true nor false (nor 1 or 0)")
    return bool(value)


def _parts(returned: Any, method: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Returns what a method of the environment returned, if it has Gymnasium's parts."""
    wanted = f"Gymnasium's {method} returns ({', '.join(names)})"
    if not isinstance(returned, tuple) or len(returned) != len(names):
        count = f"{len(returned)} values" if isinstance(returned, tuple) else "the observation alone"
        raise TypeError(f"{method} returned {count}, as in the old Gym API; {wanted}")
    if not isinstance(returned[-1], Mapping):
        raise TypeError(f"the info that {method} returned is {returned[-1]!r}, no dictionary; {wanted}")
    return returned
