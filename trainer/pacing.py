"""Which processes step the environments: arithmetic only."""

from __future__ import annotations

_WAKING = 150e-6
"""Seconds from an order to a sleeping process to its answer, for nothing but that: about, on Linux."""


def quick(num_envs: int, step_seconds: float) -> bool:
    """Returns whether all environments are stepped before another process could have been woken to do it.

    Also where the learner would learn meanwhile: to wake the process costs it as much as it would save.
    """
    return num_envs * step_seconds < _WAKING
