"""Intervals and aggregates of success rates. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from trainer.recipe.quantiles import student_quantile

_Z = statistics.NormalDist().inv_cdf(0.975)
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
    """Student's t interval of the mean of independent values, one per seed.

    None for fewer than two, and for equal values, whose spread is unknown and not zero.
    """
    count = len(values)
    if len(set(values)) < 2:
        return None
    mean = statistics.fmean(values)
    half = student_quantile(count - 1) * statistics.stdev(values) / math.sqrt(count)
    return Interval(mean - half, mean + half)


def iqm(values: Sequence[float]) -> float:
    """Returns the interquartile mean: without the lowest and the highest quarter of the values.

    Robust to a few outlying seeds and more efficient than the median (Agarwal et al. 2021,
    arXiv:2108.13264). As there, a quarter is rounded down to whole values.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def iqm_interval(
    runs: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Returns the bootstrap interval of the IQM over tasks and seeds, which draws whole runs.

    A run is one network for all its tasks, so its seed affects all of them. Drawing seeds separately for each
    task (Agarwal et al. 2021) assumes separate runs per task; for multi-task runs such an interval covers the
    truth in as few as half of all cases (`tests/benchmarks/coverage.py`). The percentiles are expanded to
    match Student's t for the number of runs (Hesterberg 2015): a plain bootstrap of few runs is too narrow.

    Args:
        runs: the scores of each run, one per task.
        seed: seed of the resampling, for reproducible reports.
        resamples: number of resamples.

    Returns:
        None for fewer than two runs, and for equal ones.
    """
    held = [run for run in runs if run]
    count = len(held)
    if len(set(map(tuple, held))) < 2:
        return None
    generator = random.Random(seed)
    resampled = sorted(
        iqm([score for run in generator.choices(held, k=count) for score in run]) for _ in range(resamples)
    )
    spread = math.sqrt(count / (count - 1)) * student_quantile(count - 1)
    edge = math.floor(statistics.NormalDist().cdf(-spread) * resamples)
    return Interval(resampled[edge], resampled[-edge - 1])


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Welch's interval of the difference of two means (Welch 1947); None with fewer than two values in one.

    Args:
        ours: independent values, one per seed.
        theirs: the values to subtract.
    """
    if len(ours) < 2 or len(theirs) < 2:
        return None
    parts = [statistics.variance(values) / len(values) for values in (ours, theirs)]
    total = sum(parts)
    if total == 0:
        return None
    freedom = total**2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (ours, theirs), strict=True))
    middle = statistics.fmean(ours) - statistics.fmean(theirs)
    half = student_quantile(max(1, math.floor(freedom))) * math.sqrt(total)
    return Interval(middle - half, middle + half)
