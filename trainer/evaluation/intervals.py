"""95% intervals of success rates, of one task and of the mean over tasks, and of returns. Pure."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from trainer.recipe.quantiles import student_quantile

_Z = NormalDist().inv_cdf(0.975)

Rates = npt.NDArray[np.float64]


def wilson(rate: Rates, trials: npt.NDArray[np.float64] | float) -> tuple[Rates, Rates]:
    """Wilson's score interval of success rates (Wilson 1927).

    Unlike the normal approximation it stays inside 0..1 and does not collapse at 0 of n or n of n.

    Args:
        rate: successes / trials, 0..1, of any shape.
        trials: independent episodes behind each rate.

    Returns:
        Lower and upper bounds, of the rates' shape.
    """
    scale = 1 + _Z**2 / trials
    centre = (rate + _Z**2 / (2 * trials)) / scale
    spread = _Z * np.sqrt(rate * (1 - rate) / trials + _Z**2 / (4 * trials**2)) / scale
    # the bounds at 0 and 1 are exact; rounding must not put them on the wrong side of the rate
    return np.minimum(np.maximum(centre - spread, 0.0), rate), np.maximum(
        np.minimum(centre + spread, 1.0), rate
    )


def wilson_of_mean(rates: Rates, trials: int) -> tuple[float, float]:
    """Wilson's interval of the mean over tasks, at the effective number of episodes.

    Tasks are strata: the difference between easy and hard ones is not uncertainty. The effective number of
    episodes is that of a single task with the same variance of its rate (Kish 1965; in Wilson's interval Korn
    and Graubard 1998, Franco et al. 2019). Each task's variance is taken at (successes + 1) / (trials + 2),
    because a task solved 10 times out of 10 is not certain. A bootstrap within tasks and the normal
    approximation treat it as certain, and then cover the truth in as few as a third of all cases.

    Args:
        rates: the success rate of each task, shape (tasks,).
        trials: independent episodes per task.
    """
    smooth = (rates * trials + 1) / (trials + 2)
    common = smooth.mean()
    effective = rates.size * trials * common * (1 - common) / (smooth * (1 - smooth)).mean()
    low, high = wilson(rates.mean(keepdims=True), float(effective))
    return float(low[0]), float(high[0])


def student(values: Rates) -> tuple[float, float]:
    """Student's interval of the mean of independent values, shape (n,), n at least 2."""
    spread = student_quantile(values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - spread), float(values.mean() + spread)
