"""Quantiles of Student's t, for intervals that the trainer logs and a report draws.

It is in this package because both the trainer and clusterkit import it.
"""

from __future__ import annotations

import math
from functools import cache

_STEPS = 80
"""Halvings of a bracket: more than a float64 has digits."""


@cache
def student_quantile(freedom: int, level: float = 0.95) -> float:
    """Returns the t below which the absolute value of Student's t lies with probability `level`.

    Args:
        freedom: degrees of freedom, 1 or more.
        level: of a two-sided interval, between 0 and 1.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < level:
        low, high = high, 2.0 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Returns the probability of |T| <= t, exact for whole degrees (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for number in range(1 + odd, freedom, 2):
        total += term
        term *= square * number / (number + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
