"""Which processes step the environments: arithmetic only."""

from __future__ import annotations

from trainer.processors import usable_processors
from trainer.recipe.memory import helper_processes, worker_processes

_WAKING = 150e-6
"""Seconds from an order to a sleeping process to its answer, for nothing but that: about, on Linux."""


def worker_count(num_envs: int, processors: int | None = None) -> int:
    """Returns a number of worker processes that leaves the learner a processor.

    No more than needed for the same longest share: 32 environments on 15 processors take 11 workers of at
    most 3. On a single processor there is nothing to overlap, and 0 is returned: the environments are
    stepped in-process.

    Args:
        num_envs: environments.
        processors: how many there are; by default those this process may use.
    """
    return worker_processes(num_envs, usable_processors() if processors is None else processors)


def helper_count(num_envs: int, processors: int | None = None) -> int:
    """Returns a number of worker processes beside a learner that steps a share itself, as large as theirs.

    Args:
        num_envs: environments.
        processors: how many there are; by default those this process may use.
    """
    return helper_processes(num_envs, usable_processors() if processors is None else processors)


def quick(num_envs: int, step_seconds: float) -> bool:
    """Returns whether all environments are stepped before another process could have been woken to do it.

    Also where the learner would learn meanwhile: to wake the process costs it as much as it would save.
    """
    return num_envs * step_seconds < _WAKING
