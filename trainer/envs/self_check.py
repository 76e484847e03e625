"""Checks that a task's fast class agrees with the official one bit for bit before it is used.

Other package versions or another processor could break the equality. So before the first environment of a
task in a process, both classes play three short episodes; if they differ, the official class is used, each of
whose environments then has a model of its own, for what differs may come of sharing one. Between the steps of
the fast one a copy of it plays another goal, with which it shares what copies share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.fast_metaworld import fast_class
from trainer.envs.official import (
    STANDARD,
    forget_model,
    goal_vectors,
    official_class,
    official_task,
    scratch_environment,
    way_depends_on_goal,
)

_EPISODES = ((0, 36), (1, 2), (0, 2))
"""Goal and steps of each: long enough to touch the object, another goal, and a start that is remembered."""
_COPYS_GOAL = 3


@cache
def environment_class(task: str) -> tuple[Any, str]:
    """Returns the fast class of a task and an empty remark, or the official class and the reason for it."""
    fault = difference(task, fast_class)
    if fault is None:
        return fast_class(task), ""
    remark = f"{task} is played by the official environment: the fast one differs, {fault}"
    forget_model(task)
    return official_class(task, shares_model=False), remark


def difference(task: str, make: Callable[[str], Any]) -> str | None:
    """Plays the check's episodes in the class that `make` returns and in the official one.

    Returns:
        The first difference, or how the class failed; None if they agree to the bit.
    """
    theirs = scratch_environment(task)
    rng = np.random.default_rng(0)
    goals = goal_vectors(task, **STANDARD)
    try:
        ours, copy = make(task)(), make(task)()
        ours.way_depends_on_goal = copy.way_depends_on_goal = way_depends_on_goal(task, goals)
        copy.set_task(official_task(task, goals[_COPYS_GOAL]))
        for goal, steps in _EPISODES:
            for env in (ours, theirs):
                env.set_task(official_task(task, goals[goal]))
            observation = theirs.reset()[0]
            if not same(ours.reset()[0], observation):
                return f"reset with goal {goal}"
            copy.reset()
            for step in range(steps):
                action = _towards_object(observation, rng)
                copy.step(action)
                expected = theirs.step(action)
                observation = expected[0].copy()
                for what, a, b in zip(_PARTS, ours.step(action), expected, strict=True):
                    if not same(a, b):
                        return f"{what} at step {step} with goal {goal}"
    except Exception as fault:  # whatever it is, the official class can do without us
        return f"{type(fault).__name__}: {fault}"
    return None


_PARTS = ("observation", "reward", "termination", "truncation", "info")


def same(a: Any, b: Any) -> bool:
    """Whether two parts of a step's result are the same to the bit."""
    if isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in b)
    return np.asarray(a, np.float64).tobytes() == np.asarray(b, np.float64).tobytes()


def _towards_object(
    observation: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """An action that brings the hand to the first object and closes it there, with noise."""
    way = observation[4:7] - observation[:3]
    grip = 1.0 if np.abs(way).max() < 0.05 else -1.0
    action = np.append(10 * way, grip) + rng.uniform(-0.3, 0.3, 4)
    return np.clip(action, -1, 1).astype(np.float32)
