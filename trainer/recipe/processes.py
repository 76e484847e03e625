"""How many processes step the environments where the user sets no number, by arithmetic alone."""

from __future__ import annotations


def worker_processes(num_envs: int, processors: int) -> int:
    """How many processes step the environments where nobody says.

    No more than needed for the same longest share: 32 environments on 15 processors take 11 workers of at
    most 3. One processor is the learner's; without another there is nothing to overlap, and 0 is returned.
    """
    if processors < 2:
        return 0
    share = -(-num_envs // (processors - 1))
    return -(-num_envs // share)


def helper_processes(num_envs: int, processors: int) -> int:
    """How many do, where nobody says, beside a learner that steps a share itself, as large as theirs."""
    return worker_processes(num_envs, processors + 1) - 1


_WAKING = 150e-6
"""Seconds from an order to a sleeping process to its answer, for nothing but that: about, on Linux."""


def quick(num_envs: int, step_seconds: float) -> bool:
    """Returns whether all environments are stepped before another process could have been woken to do it.

    Also where the learner would learn meanwhile: to wake the process costs it as much as it would save.
    """
    return num_envs * step_seconds < _WAKING
