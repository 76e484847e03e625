"""Assigns environments to workers so that every worker takes about the same time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_SLACK = 0.05
"""Share by which a worker with a loaded model may be ahead and still get the model's environments: reading a
model is slow."""


def dealt(costs: Sequence[float], models: Sequence[Hashable], workers: int) -> list[list[int]]:
    """Assigns environments to workers so that their costs add up to about the same.

    The longest go first, each to the worker with the least to do, or nearly the least if it has the model.
    Source of the rule without models: https://doi.org/10.1137/0117039

    Args:
        costs: relative time of a step, by environment; positive.
        models: the model that each environment reads; a worker reads each model only once.
        workers: at least 1, at most one for each environment.

    Returns:
        Each worker's environments in ascending order; none goes without.
    """
    slack = _SLACK * sum(costs) / workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for env in sorted(range(len(costs)), key=lambda env: -costs[env]):
        least = min(sums)
        near = [worker for worker in range(workers) if least and sums[worker] <= least + slack]
        owners = [worker for worker in near if any(models[env] == models[other] for other in shares[worker])]
        worker = min(owners or range(workers), key=sums.__getitem__)
        shares[worker].append(env)
        sums[worker] += costs[env]
    return [sorted(share) for share in shares]
