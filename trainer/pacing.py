"""When something is due, counted in environment steps: arithmetic only."""

from __future__ import annotations

_WAKING = 150e-6
"""Seconds from an order to a sleeping process to its answer, for nothing but that: about, on Linux."""


class UpdateCredit:
    """How many updates the environment steps so far have earned.

    Keeps the update-to-data ratio of the recipe exact over time: what does not make a whole update is
    carried over.

    Args:
        steps_per_update: environment steps that earn one update.
        credit: steps carried over from an earlier `credit`.
    """

    def __init__(self, steps_per_update: float, credit: float = 0.0) -> None:
        self._steps_per_update = steps_per_update
        self.credit = credit

    def earn(self, steps: int) -> int:
        """Adds environment steps and returns the updates now due."""
        self.credit += steps
        updates = int(self.credit // self._steps_per_update)
        self.credit -= updates * self._steps_per_update
        return updates


def crossed(interval: int, before: int, now: int) -> bool:
    """Returns whether a multiple of the interval lies in (before, now]; never for an interval of 0."""
    return interval > 0 and now // interval > before // interval


def quick(num_envs: int, step_seconds: float) -> bool:
    """Returns whether all environments are stepped before another process could have been woken to do it.

    Also where the learner would learn meanwhile: to wake the process costs it as much as it would save.
    """
    return num_envs * step_seconds < _WAKING
