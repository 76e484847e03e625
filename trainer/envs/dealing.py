"""Which worker steps which environments: an arithmetic that evens out their times."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_SLACK = 0.05
"""How much of a fair share a worker may be ahead and still be given what it has the model of: a model takes
long to read, but only once."""


def dealt(costs: Sequence[float], models: Sequence[Hashable], workers: int) -> list[list[int]]:
    """Deals environments to workers so that every worker's costs add up to about the same.

    The longest first, each to the worker with the least to do, or nearly so if it has the model already.
    Source of the rule without models: https://doi.org/10.1137/0117039

    Args:
        costs: relative time of a step, by environment; positive.
        models: what is read for the environment, of which a worker needs each but once.
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
