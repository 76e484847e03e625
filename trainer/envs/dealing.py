"""Which worker steps which environments: an arithmetic that evens out their times."""

from __future__ import annotations

from collections.abc import Sequence


def dealt(costs: Sequence[float], workers: int) -> list[list[int]]:
    """Deals environments to workers so that every worker's costs add up to about the same.

    The longest first, each to the worker with the least to do; the longest sum is at most 4/3 of the best
    possible one. Source: https://doi.org/10.1137/0117039

    Args:
        costs: relative time of a step, by environment; positive.
        workers: at least 1, at most one for each environment.

    Returns:
        Each worker's environments in ascending order; none goes without.
    """
    shares: list[list[int]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for env in sorted(range(len(costs)), key=lambda env: -costs[env]):
        worker = sums.index(min(sums))
        shares[worker].append(env)
        sums[worker] += costs[env]
    return [sorted(share) for share in shares]
