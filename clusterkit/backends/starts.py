"""When jobs would start, as a scheduler foretells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PredictedStart:
    """When one job would start."""

    wait: float | None
    """Seconds from now; None when the scheduler gives no start."""
    moment: float | None = None
    """Unix seconds of the cluster's clock."""
    partition: str | None = None
    waiting: int = 0
    """Jobs that wait in that partition."""
    words: str = ""
    """Why there is no start."""


@dataclass(frozen=True)
class FairShare:
    """The user's fair share of one account."""

    account: str
    factor: float | None
    """0..1: the higher, the sooner jobs start."""
    used: float | None
    """Share of the cluster's recent use, 0..1."""


@dataclass(frozen=True)
class Predictions:
    """What a scheduler says of several jobs that might be submitted."""

    starts: Mapping[str, PredictedStart] = field(default_factory=dict)
    """By the word each was asked about with; one without an answer is missing."""
    shares: tuple[FairShare, ...] = ()
    billing: Mapping[str, float] = field(default_factory=dict)
    """Units an hour, by the same words; none where the partition has no weights."""
