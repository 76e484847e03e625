"""A scheduler's predictions of job starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AT_ONCE = 60.0
"""A start within so many seconds is "now"."""


@dataclass(frozen=True)
class PredictedStart:
    """The predicted start of one job."""

    wait: float | None
    """Seconds from now; None without a prediction."""
    moment: float | None = None
    """Unix seconds of the cluster's clock."""
    partition: str | None = None
    waiting: int = 0
    """Pending jobs in the partition; with any, the start is a bound, because of backfill."""
    words: str = ""
    """Why there is no prediction."""

    @property
    def at_once(self) -> bool:
        """Whether it starts at once."""
        return self.wait is not None and self.wait <= AT_ONCE


@dataclass(frozen=True)
class FairShare:
    """The user's fair share of one account."""

    account: str
    factor: float | None
    """0..1; jobs start sooner with a higher one."""
    used: float | None
    """Share of the cluster's recent use, 0..1."""


@dataclass(frozen=True)
class Predictions:
    """A scheduler's predictions for several jobs."""

    starts: Mapping[str, PredictedStart] = field(default_factory=dict)
    """By label; jobs without an answer are missing."""
    shares: tuple[FairShare, ...] = ()
    billing: Mapping[str, float] = field(default_factory=dict)
    """Billing units an hour by label; missing if the partition has no weights."""
