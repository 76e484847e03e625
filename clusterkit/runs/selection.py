"""Selects the runs that a command applies to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.names import in_group
from clusterkit.runs.state import RunState, remembered
from clusterkit.units import parse_duration

_RECENT, _NEWEST = 15, 5
"""Number of ended runs shown by default, and how many of them are those submitted last."""


@dataclass(frozen=True)
class Selection:
    """Filters for runs; all that are set must match."""

    states: frozenset[JobState] = frozenset()
    """Compared with the current state, not with the ledger's."""
    clusters: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    """Ids or short names of groups, or prefixes of ids."""
    names: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    since: datetime | None = None
    """Submitted at this time or later."""

    def __bool__(self) -> bool:
        """Returns whether any filter is set."""
        return self != Selection()

    def matches(self, run: LedgerRun) -> bool:
        """Returns whether a run matches, apart from its state."""
        return (
            (not self.clusters or run.cluster in self.clusters)
            and (not self.groups or any(in_group(run, name) for name in self.groups))
            and (not self.names or run.name in self.names)
            and (not self.profiles or run.profile in self.profiles)
            and (self.since is None or submitted(run) >= self.since)
        )

    def shows(self, state: RunState) -> bool:
        """Returns whether a state matches."""
        return not self.states or state.state in self.states


def parse_states(texts: Sequence[str]) -> frozenset[JobState]:
    """Parses comma-separated state names in any case; `active` and `ended` stand for all such states.

    Raises:
        ConfigError: a state is unknown.
    """
    found: set[JobState] = set()
    for word in ",".join(texts).replace(",", " ").lower().split():
        if word in ("active", "ended"):
            found |= {state for state in JobState if state.active == (word == "active")} - {JobState.UNKNOWN}
        elif word.upper() in JobState.__members__:
            found.add(JobState(word.upper()))
        else:
            names = ", ".join(["active", "ended", *(state.lower() for state in JobState)])
            raise ConfigError(f"--state: there is no state {word!r}", hint=f"one of {names}")
    return frozenset(found)


def parse_since(text: str, now: datetime) -> datetime:
    """Parses a time: a duration before `now` ("2d", "12h") or an ISO 8601 date or time, local without a zone.

    Raises:
        ConfigError: the text is neither.
    """
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        hint = 'write how long ago, e.g. "2d" or "12h", or a day, e.g. "2026-01-31"'
        raise ConfigError(f"--since: {text!r} is no time", hint=hint) from error


def submitted(run: LedgerRun) -> datetime:
    """Returns the time of a run's first submission; the earliest datetime if invalid."""
    try:
        moment = datetime.fromisoformat(run.submitted)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def known_state(run: LedgerRun) -> RunState:
    """Returns a run's last known state."""
    last = remembered(run.last)
    if last is not None and last.state == run.state:
        return last
    open_ = run.state == JobState.SUBMITTING
    why = "it is not known yet whether there is a job" if open_ else None
    return RunState(JobState(run.state), why=why, updated=submitted(run).timestamp())


def settled(run: LedgerRun) -> bool:
    """Returns whether a run's state is final."""
    state = known_state(run)
    return state.final or state.state is JobState.NOT_SUBMITTED


def recent(runs: Sequence[LedgerRun]) -> list[LedgerRun]:
    """Returns active runs and the last few ended ones, in the given order; groups are kept whole.

    The runs submitted last are always among them: by the clock of another day, or of a cluster, they may seem
    to have ended long ago.
    """
    ended = [run for run in runs if not JobState(run.state).active]
    newest = {run.run_id for run in ended[-_NEWEST:]}
    others = [run for run in ended if run.run_id not in newest]
    others.sort(key=lambda run: known_state(run).updated or submitted(run).timestamp())
    hidden = {run.run_id for run in others[: len(newest) - _RECENT]}
    groups = {run.group for run in runs if run.group and run.run_id not in hidden}
    return [run for run in runs if run.run_id not in hidden or run.group in groups]
