"""Watches runs until all have ended, over one connection per cluster.

The scheduler is queried rarely, and even less often if its answers are slow; heartbeats, which are small
files, are read in between. A broken connection is replaced unless the new login would need the user.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError, NotAllowedError, TransportError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.selection import Selection, settled
from clusterkit.runs.settling import settle_open
from clusterkit.runs.state import RunState
from clusterkit.runs.status import (
    Ended,
    StatusReport,
    StatusRow,
    as_remembered,
    ask_cluster,
    choose,
    newly_ended,
    record,
    searched_clusters,
)
from clusterkit.site import connected
from clusterkit.transport.base import Transport
from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.questions import Question, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

SLOW_SECONDS = 5.0
"""Seconds; a scheduler that takes longer to answer counts as busy."""
LONGEST_PAUSE = 300.0

Also = Callable[[str, Transport, Sequence[LedgerRun]], None]
"""A callback for each look at a cluster: the cluster's name, the connection and the runs."""


@dataclass
class LookPace:
    """The pause between queries, in seconds; doubled after each one that was slow or failed."""

    least: float
    pause: float = field(init=False)

    def __post_init__(self) -> None:
        self.pause = self.least

    def after(self, seconds: float, *, failed: bool) -> None:
        """Adjusts the pause after a query that took `seconds` or failed."""
        burden = failed or seconds > SLOW_SECONDS
        self.pause = min(2 * self.pause, LONGEST_PAUSE) if burden else self.least


@dataclass(frozen=True)
class Paces:
    """Seconds between looks."""

    scheduler: float = 30.0
    """Between queries to the scheduler; sites ask users not to poll the controller more often."""
    heartbeat: float = 5.0
    """Between reads of a remote cluster's run directories."""
    local: float = 1.0
    """Between looks at this machine."""
    login: float = 5.0
    """Between the loss of a connection and a new login."""


@dataclass(frozen=True)
class Watched:
    """The result of one look."""

    report: StatusReport
    next_question: Mapping[str, float]
    """Cluster -> seconds until its scheduler is queried again."""
    over: bool
    """Whether no run is active any more, or no cluster with active runs can be queried again."""


def watch(
    settings: Settings,
    ledger: Ledger,
    *,
    names: Sequence[str] = (),
    selection: Selection = Selection(),  # noqa: B008 - frozen
    paces: Paces = Paces(),
    also: Also | None = None,
    ended: Ended | None = None,
) -> Iterator[Watched]:
    """Yields looks at runs until none is active; the last look shows how they ended.

    Args:
        settings: the project's settings.
        ledger: the project's ledger, which records the new states.
        names: names of runs; empty means all active runs, including those submitted in the meantime.
        selection: filters.
        paces: the intervals between looks.
        also: called at each look, with the same connection, after the states are recorded.
        ended: likewise, with the runs that have ended since the last look.

    Raises:
        RunError: a name matches no run.
        ConfigError: a cluster is unknown.
    """
    chosen = choose(ledger, names=names, everything=True, selection=selection)
    shown = {run.run_id for run in (chosen if names else _going(chosen))}
    searched = frozenset() if names else searched_clusters(settings, selection)
    with ExitStack() as stack:
        stations: dict[str, _Station] = {}
        while True:
            known = [run for run in ledger.runs() if selection.matches(run)]
            shown |= set() if names else {run.run_id for run in _going(known)}
            runs = [run for run in known if run.run_id in shown]
            for name in dict.fromkeys([*(run.cluster for run in runs if not settled(run)), *searched]):
                if name not in stations and name in settings.clusters:
                    search = name in searched
                    cluster = settings.cluster(name)
                    station = _Station(settings, cluster, paces, search=search, also=also, ended=ended)
                    stations[name] = station
                    stack.callback(station.close)
            for name, station in stations.items():
                mine = [run for run in runs if run.cluster == name]
                shown |= {run.run_id for run in station.look(ledger, mine) if selection.matches(run)}
            watched = _watched(settings, ledger.runs(), shown, stations, selection)
            yield watched
            if watched.over:
                return
            due = min(station.due for station in stations.values())
            time.sleep(max(0.0, due - time.monotonic()))


def _going(runs: Sequence[LedgerRun]) -> list[LedgerRun]:
    """Returns the active runs and the ended runs of their groups."""
    groups = {run.group for run in runs if run.group and not settled(run)}
    return [run for run in runs if run.group in groups or not settled(run)]


def _watched(
    settings: Settings,
    known: Sequence[LedgerRun],
    shown: Set[str],
    stations: Mapping[str, _Station],
    selection: Selection,
) -> Watched:
    runs = [run for run in known if run.run_id in shown]
    states = {run_id: state for station in stations.values() for run_id, state in station.states.items()}
    rows = []
    for run in runs:
        state = states.get(run.run_id)
        if state is None or (state.state.active and settled(run)):  # another command saw its end
            state = as_remembered(run)
        rows.append(StatusRow(run, state))
    silent = {name: station.silent for name, station in stations.items() if station.silent}
    # An ended run needs no query, so its cluster may have no station.
    lost = (run.cluster for run in runs if run.cluster not in settings.clusters and not settled(run))
    silent |= dict.fromkeys(lost, "it is not configured here")
    report = StatusReport(
        tuple(row for row in rows if selection.shows(row.state)),
        silent=silent,
        mute={name: station.mute for name, station in stations.items() if station.mute},
        found={name: station.found for name, station in stations.items() if station.found},
        known=len(known),
    )
    now = time.monotonic()
    active = {row.run.cluster for row in rows if row.state.state.active}
    return Watched(
        report,
        {name: max(0.0, at.question - now) for name, at in stations.items()},
        over=all(name not in active or at.due == math.inf for name, at in stations.items()),
    )


class _Station:
    """One watched cluster: its connection, pace and last answer."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        paces: Paces,
        *,
        search: bool,
        also: Also | None = None,
        ended: Ended | None = None,
    ) -> None:
        self.states: dict[str, RunState] = {}
        self.silent: str | None = None
        self.mute: str | None = None
        self.found = 0
        self.due = self.question = time.monotonic()
        """Times of the next look and of the next query to the scheduler, by the monotonic clock."""
        here = cluster.here
        self._settings, self._cluster, self._search = settings, cluster, search
        self._also, self._ended = also, ended
        self._look_seconds = paces.local if here else paces.heartbeat
        self._pace = LookPace(paces.local if here else paces.scheduler)
        self._logins = LookPace(paces.login)
        self._stack = ExitStack()
        self._observer: Observer | None = None
        self._tried = False
        """Whether a login has been tried."""

    def close(self) -> None:
        """Closes the connection."""
        self._observer = None
        self._stack.close()

    def look(self, ledger: Ledger, runs: Sequence[LedgerRun]) -> list[LedgerRun]:
        """Updates `states` if a look is due; uses the ledger's states if the cluster does not answer.

        Returns:
            Newly found runs on the cluster.
        """
        now = time.monotonic()
        if now < self.due:
            return []
        going = [run for run in runs if not settled(run)]
        if not going and not self._search:
            self.due = now + self._look_seconds
            return []
        try:
            if self._observer is None:
                self._log_in()
            found = self._question(ledger, going) if now >= self.question else self._glance(ledger, going)
            if self._also is not None and self._observer is not None:
                self._also(self._cluster.name, self._observer.transport, [*runs, *found])
        except NotAllowedError:
            raise
        except ClusterkitError as error:
            self.close()
            self.silent = error.cause
            self.states |= {run.run_id: as_remembered(run) for run in runs}
            self._logins.after(0.0, failed=True)
            self.due = math.inf if isinstance(error, _HopelessError) else now + self._logins.pause
            return []
        self.silent = None
        self._logins = LookPace(self._logins.least)
        self.due = min(time.monotonic() + self._look_seconds, self.question)
        return found

    def _log_in(self) -> None:
        try:
            transport = self._stack.enter_context(connected(self._cluster, ask=self._answer))
        except UnreachableError:
            raise
        except TransportError as error:  # refused: repeated logins would look like an attack
            raise _HopelessError(f"{error.cause}; run the command again") from error
        finally:
            self._tried = True
        self._observer = Observer(self._cluster, transport)

    def _answer(self, question: Question) -> Sequence[str]:
        """Asks the user only at the first login, because later ones happen inside a live view."""
        if not self._tried:
            return ask_on_terminal(question)
        if question.prompts:
            raise TransportError(f"{question.where} asks for {question.wanted!r}")
        return ()

    def _question(self, ledger: Ledger, going: Sequence[LedgerRun]) -> list[LedgerRun]:
        """Queries the scheduler and reads the run directories."""
        observer = self._observer
        assert observer is not None
        began = time.monotonic()
        if any(run.state == JobState.SUBMITTING for run in going) and not self._search:
            # Settling is a query of its own; the jobs are queried at the next look.
            settle_open(self._cluster, observer.transport, ledger, going)
            found: list[LedgerRun] = []
            self._glance(ledger, [ledger.get(run.run_id) or run for run in going])
        else:
            answer = ask_cluster(self._settings, ledger, observer, going, search=self._search)
            self.states |= answer.states
            self._over(answer.ended)
            self.mute, found = answer.mute, list(answer.found)
            self.found += len(found)
            self._search = False
        self._pace.after(time.monotonic() - began, failed=self.mute is not None)
        self.question = time.monotonic() + self._pace.pause
        return found

    def _glance(self, ledger: Ledger, going: Sequence[LedgerRun]) -> list[LedgerRun]:
        """Reads only the run directories."""
        assert self._observer is not None
        states = self._observer.look(going)
        record(ledger, going, states, certain=self.mute is None)
        self.states |= {run.run_id: state for run, state in zip(going, states, strict=True)}
        self._over(newly_ended(going, states))
        return []

    def _over(self, rows: Sequence[StatusRow]) -> None:
        if self._ended is not None and self._observer is not None:
            self._ended(self._cluster, self._observer.transport, rows)


class _HopelessError(TransportError):
    """A login was refused or needs the user."""
