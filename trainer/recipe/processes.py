"""How many processes step the environments where nobody says, by arithmetic alone."""

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
