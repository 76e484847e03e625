"""Whether a task's hand reaches its start by the same path for every goal.

If the goal moves nothing that the hand or a loose object meets on the way, the physics is bit-identical, and
simulating the path for one goal is enough for all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.envs.official import goal_vectors
from trainer.recipe.goals import FIXED_GOALS

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
