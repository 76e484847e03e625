"""Whether a task's hand comes to its start in the same way whatever the goal is.

Where the goal moves nothing that the hand or a loose object meets on the way, the physics comes out the same
to the bit, and simulating the way for one goal is enough for all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.envs.official import goal_vectors
from trainer.recipe.kinds import FIXED_GOALS

STANDARD = {"count": 50, "seed": FIXED_GOALS}
"""The list of goals that nearly every run plays."""
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
"""Found by simulating the way for each goal of the standard list; a test does so again. Of the other tasks
ten have a way of their own for each goal, and 18 move nothing before the hand has arrived."""


def way_depends_on_goal(task: str, goals: npt.NDArray[np.float64]) -> bool:
    """Returns False where every one of these goals, of shape (goals, n), is known to have the same way."""
    if task not in _SAME_WAY:
        return True
    standard = goal_vectors(task, **STANDARD)
    return not np.array_equal(goals, standard[: len(goals)])
