"""Predicts how a run goes on: at what rate, until when, and what its time limit will do to it. Pure."""

from __future__ import annotations

import math

SMOOTHING_SECONDS = 60.0
"""After so long an earlier rate counts for a third."""
_ENDINGS = {
    "": "will not finish: stops at {share}%, at its time limit",
    "requeue": "will hit the time limit at {share}%, will be requeued",
}
_GOES_ON = "will hit the time limit at {share}%, will go on in the next job"


def smoothed(rate: float, before: float | None, seconds: float) -> float:
    """A rate that does not jump with every look: an earlier one still counts, the less the older it is.

    Args:
        rate: steps a second now.
        before: the smoothed rate of the look before; None when there was none.
        seconds: between the two looks.
    """
    if before is None or seconds < 0:
        return rate
    return rate + (before - rate) * math.exp(-seconds / SMOOTHING_SECONDS)


def time_left(*, step: float, total: float, rate: float, age: float) -> float:
    """Seconds until the last step.

    Args:
        step: the last one known.
        total: steps of the whole run.
        rate: steps a second.
        age: how long ago `step` was true, in seconds.
    """
    return max(0.0, (total - step) / rate - age)


def at_the_limit(*, left: float, share: float, elapsed: float, limit: float, goes_on: str) -> str | None:
    """One line about a run that its time limit will stop; None when it fits.

    Args:
        left: seconds until the last step.
        share: of the steps done, 0..1.
        elapsed: seconds since the job's start.
        limit: the job's time limit, in seconds.
        goes_on: how it continues past the limit: `requeue`, `array`, `chain`; "" is not at all.
    """
    room = max(0.0, limit - elapsed)
    if left <= room:
        return None
    reached = share + (1 - share) * room / left
    return _ENDINGS.get(goes_on, _GOES_ON).format(share=min(99, int(reached * 100)))
