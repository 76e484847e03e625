"""Predicts a run's rate, its end and the effect of its time limit. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

SMOOTHING_SECONDS = 20.0
"""Seconds after which the weight of an earlier rate has dropped to about a third."""
ENOUGH_SECONDS = 5.0
"""Seconds; two sightings closer together give no useful rate."""
LONG_SECONDS = 300.0
"""Seconds after which the start-up hardly affects the mean rate since the start."""
_ENDINGS = {
    "": "will not finish: stops at its time limit at {share}%",
    "requeue": "will reach its time limit at {share}% and be requeued",
}
_GOES_ON = "will reach its time limit at {share}% and continue in the next job"


@dataclass(frozen=True)
class Sighting:
    """A run's step at a time of the node's clock."""

    step: float
    time: float
    """Unix seconds."""


@dataclass(frozen=True)
class Pace:
    """The recent speed of a run."""

    rate: float | None = None
    """Steps per second; None until there is enough data."""
    since: Sighting | None = None
    """The sighting from which the next rate is measured, for a program that reports none."""


def pace(now: Sighting, began: Sighting | None, before: Pace) -> Pace:
    """Computes the recent rate of a program that reports none, from successive looks.

    Steps before the first look count only if the attempt has run long enough to make its start-up negligible.

    Args:
        now: the newest heartbeat.
        began: time and step at the start of this attempt; None if unknown.
        before: this attempt's pace at the previous look; empty if there was none.
    """
    since = before.since
    if since is None or now.step < since.step or now.time < since.time:
        return Pace(_since_start(now, began), now)
    if before.rate is None and now.step == since.step:
        return Pace(None, now)  # still starting up
    seconds = now.time - since.time
    if seconds < ENOUGH_SECONDS:
        return replace(before, rate=before.rate or _since_start(now, began))
    return Pace(smoothed((now.step - since.step) / seconds, before.rate, seconds), now)


def _since_start(now: Sighting, began: Sighting | None) -> float | None:
    if began is None or now.time - began.time < LONG_SECONDS or now.step <= began.step:
        return None
    return (now.step - began.step) / (now.time - began.time)


def smoothed(rate: float, before: float | None, seconds: float) -> float:
    """Smooths a rate: the older the earlier rate is, the less it counts.

    Args:
        rate: the current steps per second.
        before: the smoothed rate at the previous look; None if there was none.
        seconds: time between the two looks.
    """
    if before is None or seconds < 0:
        return rate
    return rate + (before - rate) * math.exp(-seconds / SMOOTHING_SECONDS)


def time_left(*, step: float, total: float, rate: float, age: float) -> float:
    """Returns the seconds until the last step.

    Args:
        step: the last known step.
        total: steps of the whole run.
        rate: steps per second.
        age: seconds since the run was at `step`.
    """
    return max(0.0, (total - step) / rate - age)


def at_the_limit(*, left: float, share: float, elapsed: float, limit: float, goes_on: str) -> str | None:
    """Returns one line about a run that will exceed its time limit; None if the run fits.

    Args:
        left: seconds until the last step.
        share: fraction of the steps done, 0..1.
        elapsed: seconds since the job's start.
        limit: the job's time limit, in seconds.
        goes_on: how the run continues past the limit: `requeue`, `array` or `chain`; "" means not at all.
    """
    room = max(0.0, limit - elapsed)
    if left <= room:
        return None
    reached = share + (1 - share) * room / left
    return _ENDINGS.get(goes_on, _GOES_ON).format(share=min(99, int(reached * 100)))
