"""The predicted starts of several requests, and which of them to make. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from clusterkit.backends.jobs import AT_ONCE, Continuation, FairShare, PredictedStart
from clusterkit.units import format_duration, format_seconds

_WORTH_IT = 600.0
"""Seconds by which a start must be sooner to recommend another request."""


@dataclass(frozen=True)
class Ask:
    """A job's request."""

    gpu: str
    """"" for none."""
    seconds: int
    """Time limit."""


@dataclass(frozen=True)
class StartAdvice:
    """Another request that starts sooner, or why there is none."""

    text: str
    ask: Ask | None = None
    """The recommended request; None for the original one."""
    sooner: float | None = None
    """Seconds gained; None without a comparison."""


@dataclass(frozen=True)
class Queue:
    """The scheduler's answer."""

    starts: Mapping[Ask, PredictedStart] = field(default_factory=dict)
    """The predicted start of each request."""
    advice: StartAdvice | None = None
    shares: tuple[FairShare, ...] = ()
    billing: float | None = None
    """Billing units an hour of the run's request; None without weights."""
    continuation: Continuation | None = None
    """How the run would continue past its time limit; None if it does not or the site does not tell."""
    trouble: str = ""
    """Why there is no predicted start or no continuation."""
    hint: str = ""
    """What to do about it."""

    @property
    def refused(self) -> bool:
        """Whether every request was refused for the same reason."""
        starts = list(self.starts.values())
        return len({start.words for start in starts}) == 1 and starts[0].wait is None


def advise(
    starts: Mapping[Ask, PredictedStart],
    asked: Ask,
    *,
    needed: float | None,
    goes_on: bool,
    fitting: Collection[str],
) -> StartAdvice | None:
    """Recommends a request.

    Args:
        starts: the predicted start of each request.
        asked: the original request.
        needed: seconds the run takes; None if unknown.
        goes_on: it continues past its time limit anyway.
        fitting: GPU types that the run fits on.

    Returns:
        None without predictions.
    """
    waits = {ask: start.wait for ask, start in starts.items() if start.wait is not None}
    if not waits:
        return None
    mine = waits.get(asked)
    if mine is not None and mine <= AT_ONCE:
        return _longer(waits, asked, needed) or StartAdvice("it starts now without changes")
    better = [
        ask
        for ask, wait in waits.items()
        if (mine is None or mine - max(wait, AT_ONCE) >= _WORTH_IT) and ask.gpu in {asked.gpu, *fitting}
    ]
    if not better:
        return None if mine is None else StartAdvice(_no_better(starts[asked].waiting))
    # the soonest; of these the same GPU; of these the longest
    best = min(better, key=lambda ask: (max(waits[ask], AT_ONCE), ask.gpu != asked.gpu, -ask.seconds))
    sooner = None if mine is None else mine - waits[best]
    return StartAdvice(_words(best, waits[best], sooner, asked, needed, goes_on=goes_on), best, sooner)


def _no_better(waiting: int) -> str:
    if not waiting:
        return "no other request starts much sooner"
    jobs = "the job that waits" if waiting == 1 else f"the {waiting} jobs that wait"
    return f"{jobs} there may all start first; a shorter request more likely fits into a gap before them"


def _longer(waits: Mapping[Ask, float], asked: Ask, needed: float | None) -> StartAdvice | None:
    """Returns a longer request that also starts at once, for a run that exceeds its limit."""
    if needed is None or needed <= asked.seconds:
        return None
    now = [
        ask.seconds
        for ask, wait in waits.items()
        if ask.gpu == asked.gpu and ask.seconds > asked.seconds and wait <= AT_ONCE
    ]
    if not now:
        return None
    best = min((seconds for seconds in now if seconds >= needed), default=max(now))
    attempts = math.ceil(needed / best)
    takes = "one attempt" if attempts == 1 else f"{attempts} attempts"
    words = f"request {format_duration(best)}: it also starts now, and takes {takes}"
    return StartAdvice(f"{words} instead of {math.ceil(needed / asked.seconds)}", Ask(asked.gpu, best), 0.0)


def _words(
    best: Ask, wait: float, sooner: float | None, asked: Ask, needed: float | None, *, goes_on: bool
) -> str:
    words = f"request {format_duration(best.seconds)}"
    if best.gpu != asked.gpu:
        words += f" on {best.gpu}"
    short = best.seconds < (asked.seconds if needed is None else needed)
    if short and not goes_on:
        words += " with --until-done"
    words += ": it starts now" if wait <= AT_ONCE else f": it starts in {format_seconds(wait)}"
    if sooner is not None:
        words += f", {format_seconds(sooner)} sooner"
    if short and needed is not None:
        words += f"; about {math.ceil(needed / best.seconds)} attempts"
    return words
