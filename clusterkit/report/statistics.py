"""Intervals and aggregates of success rates. Pure, standard library only."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

_Z = statistics.NormalDist().inv_cdf(0.975)
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5% quantiles of Student's t for 1 to 30 degrees of freedom (any statistics table)."""

RESAMPLES = 2000


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float


def wilson(rate: float, trials: int) -> Interval | None:
    """Wilson's score interval of a success rate (Wilson 1927); None without trials.

    Unlike the normal approximation it stays inside 0..1 and does not collapse at 0 of n or n of n.

    Args:
        rate: successes / trials, 0..1.
        trials: number of episodes.
    """
    if trials <= 0:
        return None
    spread = _Z * math.sqrt(rate * (1 - rate) / trials + _Z**2 / (4 * trials**2))
    centre, scale = rate + _Z**2 / (2 * trials), 1 + _Z**2 / trials
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def student(values: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean of independent values, one a seed; None for fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = statistics.fmean(values)
    half = _t_quantile(count - 1) * statistics.stdev(values) / math.sqrt(count)
    return Interval(mean - half, mean + half)


def _t_quantile(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    # Abramowitz and Stegun 26.7.5, first two terms: off by less than 1e-4 from 31 on.
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)


def iqm(values: Sequence[float]) -> float:
    """Interquartile mean: the mean without the lowest and the highest quarter of the values.

    Robust to a few outlying seeds and more efficient than the median (Agarwal et al. 2021,
    arXiv:2108.13264). As there, a quarter is rounded down to whole values.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def iqm_interval(
    scores: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Stratified bootstrap interval of the IQM over tasks and seeds (Agarwal et al. 2021).

    Args:
        scores: one sequence of seeds a task; seeds are resampled within their task.
        seed: of the resampling, so that a report can be made again.
        resamples: how many; fewer are rougher at the edges.

    Returns:
        None when no task has two seeds.
    """
    if not any(len(seeds) > 1 for seeds in scores):
        return None
    generator = random.Random(seed)
    resampled = sorted(
        iqm([score for seeds in scores for score in generator.choices(seeds, k=len(seeds))])
        for _ in range(resamples)
    )
    edge = round(0.025 * resamples)
    return Interval(resampled[edge], resampled[-edge - 1])


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Welch's interval of the difference of two means (Welch 1947); None with fewer than two values in one.

    Args:
        ours: independent values, one a seed.
        theirs: those that are subtracted.
    """
    if len(ours) < 2 or len(theirs) < 2:
        return None
    parts = [statistics.variance(values) / len(values) for values in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return None
    freedom = total**2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (ours, theirs), strict=True))
    middle = statistics.fmean(ours) - statistics.fmean(theirs)
    half = _t_quantile(max(1, math.floor(freedom))) * math.sqrt(total)
    return Interval(middle - half, middle + half)
