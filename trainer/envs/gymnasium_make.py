"""Makes and tries a Gymnasium environment; any fault becomes a one-line error."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import gymnasium
import numpy.typing as npt

from trainer.arguments import nearest
from trainer.envs.faults import fault_of
from trainer.errors import UsageError

_TRIAL_STEPS = 100
from trainer.recipe.environments import split_environment
_RENAME = "give your package of that name another one, or keep the environment outside of it"


def made(name: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Makes an environment.

    Raises:
        UsageError: it is unknown, or cannot be made here.
    """
    Args:
        name: as `trainer.recipe.environments.split_environment` reads it.
        render_mode: as `gymnasium.make` has it.

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
        known = [*gymnasium.registry]
        close = nearest(identity.rpartition(":")[2], known)
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
        UsageError: the environment fails, or contradicts its declared spaces.
    """
    speaks, seconds = False, []
    try:
        read(env.reset(seed=0)[0])
        for _ in range(_TRIAL_STEPS):
            begun = perf_counter()
            observation, _reward, terminated, truncated, info = env.step(act())
            speaks = speaks or success_of(info) is not None
            read(observation)
            seconds.append(perf_counter() - begun)
            if terminated or truncated:
                break
    except (Exception, SystemExit) as error:  # of somebody else's code
        fault = fault_of(error)
        raise UsageError(f"{name} fails in its first steps: {fault.cause}", hint=fault.where) from error
    return speaks, statistics.median(seconds)


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Returns the success in an environment's info; None if there is none."""
    found = info.get("is_success", info.get("success"))
    return None if found is None else bool(found)
