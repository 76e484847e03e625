"""Queries the states of a cluster's runs in one round trip and records them in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError, NotAllowedError
from clusterkit.probes import shell_path
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.roster import adopt, roster
from clusterkit.runs.secret_values import forget_secrets
from clusterkit.runs.selection import Selection, known_state, recent, settled
from clusterkit.runs.settling import settle_open
from clusterkit.runs.state import RunState, to_text
from clusterkit.site import connected
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.transport.ahead import LoginAhead


@dataclass(frozen=True)
class StatusRow:
    """One run and its state."""

    run: LedgerRun
    state: RunState

    def as_object(self) -> dict[str, Any]:
        """Returns the run and its state as plain values, as `status --json` prints them."""
        state = asdict(self.state)
        del state["seen_step"], state["seen_time"]
        state |= {
            "state": self.state.state.value,
            "until_done": self.run.until_done or None,
            "job_id": self.state.job_id or self.run.job_id or None,
            "submission": max(self.state.submission or 0, self.run.submission),
        }
        return self.run.as_object() | state


Ended = Callable[["Cluster", Transport, Sequence[StatusRow]], None]
"""A callback for runs that have ended: their cluster, the connection, their earlier rows and new states."""


@dataclass(frozen=True)
class StatusReport:
    """All selected runs, oldest first, and the clusters that did not answer."""

    rows: tuple[StatusRow, ...]
    silent: Mapping[str, str]
    """Clusters that did not answer -> why; their rows show the last known state."""
    mute: Mapping[str, str] = field(default_factory=dict)
    """Clusters whose scheduler did not answer -> why; their run directories were read."""
    found: Mapping[str, int] = field(default_factory=dict)
    """Cluster -> number of runs found on it that the ledger did not know."""
    left_out: int = 0
    """Number of older runs that were not selected."""
    known: int = 0
    """Number of runs in the ledger, shown or not."""

    @property
    def nothing_learnt(self) -> bool:
        """Whether no run is known and a cluster that may have some did not answer."""
        return not self.rows and not self.known and bool(self.silent)


@dataclass(frozen=True)
class ClusterAnswer:
    """One cluster's answer."""

    states: Mapping[str, RunState]
    """States by run id."""
    found: tuple[LedgerRun, ...]
    """Runs that are new to the ledger."""
    mute: str | None
    """Why the scheduler did not answer; None if it did."""
    ended: tuple[StatusRow, ...] = ()
    """Runs that the ledger knew as active and that have ended."""


def query_runs(
    settings: Settings,
    ledger: Ledger,
    *,
    names: Sequence[str] = (),
    everything: bool = False,
    selection: Selection,
    login: tuple[str, LoginAhead] | None = None,
    ended: Ended | None = None,
) -> StatusReport:
    """Queries the state of runs, in order of submission.

    Ended runs are not queried again. Without names, the default cluster (or the selected ones) is also
    searched for runs that the ledger does not know.

    Args:
        settings: of the project.
        ledger: of the project; new states are recorded.
        names: runs, as `Ledger.find` takes them; empty for all that may still run and the last few ended.
        everything: without names, all runs.
        selection: filters; with any, all matching runs.
        login: a cluster and a login to it already in progress; other clusters are logged in to as needed.
        ended: called with the runs that have ended since the last query.

    Raises:
        RunError: a name matches no run.
        ConfigError: the cluster is unknown.
    """
    chosen = choose(ledger, names=names, everything=everything, selection=selection)
    searched = frozenset() if names else searched_clusters(settings, selection)
    states = {run.run_id: known_state(run) for run in chosen}
    silent: dict[str, str] = {}
    mute: dict[str, str] = {}
    found: dict[str, int] = {}
    for cluster_name in dict.fromkeys(
        [*(run.cluster for run in chosen if not settled(run)), *sorted(searched)]
    ):
        mine = [run for run in chosen if run.cluster == cluster_name]
        try:
            cluster = settings.cluster(cluster_name)
            with connected(cluster, login=login) as transport:
                observer = Observer(cluster, transport)
                answer = ask_cluster(settings, ledger, observer, mine, search=cluster_name in searched)
                if ended is not None:
                    ended(cluster, transport, answer.ended)
        except NotAllowedError:
            raise
        except ClusterkitError as error:
            silent[cluster_name] = error.cause
            states |= {run.run_id: as_remembered(run) for run in mine}
            continue
        states |= answer.states
        chosen += [run for run in answer.found if selection.matches(run)]
        if answer.found:
            found[cluster_name] = len(answer.found)
        if answer.mute:
            mute[cluster_name] = answer.mute
    if found:
        order = {run.run_id: number for number, run in enumerate(ledger.runs())}
        chosen.sort(key=lambda run: order[run.run_id])
    rows = [StatusRow(run, states[run.run_id]) for run in dict.fromkeys(chosen)]
    rows = [row for row in rows if selection.shows(row.state)]
    known = len(ledger.ids())
    left_out = 0 if names or selection else known - len(rows)
    return StatusReport(tuple(rows), silent, mute, found, left_out, known)


def choose(
    ledger: Ledger, *, names: Sequence[str], everything: bool, selection: Selection
) -> list[LedgerRun]:
    """Returns the selected runs; see `query_runs`."""
    if names:
        return [run for run in ledger.find(names) if selection.matches(run)]
    known = ledger.runs()
    if everything or selection:
        return [run for run in known if selection.matches(run)]
    return recent(known)


def searched_clusters(settings: Settings, selection: Selection) -> frozenset[str]:
    """Returns the clusters to search for runs that the ledger does not know.

    Raises:
        ConfigError: a cluster is unknown.
    """
    if selection.clusters:
        return frozenset(settings.cluster(name).name for name in selection.clusters)
    return frozenset({settings.cluster().name})


def as_remembered(run: LedgerRun) -> RunState:
    """Returns the last known state of a run that cannot be queried, without its predictions."""
    state = known_state(run)
    if settled(run):
        return state
    age = f" {ago(time.time() - state.updated)}" if state.updated else ""
    return replace(
        state,
        why=f"last known{age}",
        eta_seconds=None,
        outlook=None,
        expected_start=None,
        gpu=None,
        heartbeat_age=None,
    )


def ask_cluster(
    settings: Settings, ledger: Ledger, observer: Observer, runs: Sequence[LedgerRun], *, search: bool
) -> ClusterAnswer:
    """Queries a cluster in one round trip; interrupted submissions and newly found runs need more.

    Args:
        settings: the project's settings.
        ledger: records the new states.
        observer: the cluster's observer.
        runs: the cluster's runs.
        search: whether to search for runs that the ledger does not know.

    Raises:
        ClusterkitError: the answer was missing or incomplete.
    """
    cluster, transport = observer.cluster, observer.transport
    runs = settle_open(cluster, transport, ledger, runs)
    going, ended = [run for run in runs if not settled(run)], [run for run in runs if settled(run)]
    folder = f"{shell_path(cluster.root.rstrip('/'))}/runs"
    listing = roster(folder, ((run.run_dir, run.submission) for run in ended))
    states, answers = observer.ask(going, *([listing] if search else []))
    over = newly_ended(going, states)
    mute, found = observer.trouble, []
    if search:
        there = answers.of(listing)
        found = adopt(settings, ledger, cluster, transport, there)
        news = [*found, *(run for run in ended if run.run_dir in there.again)]
        if news:
            news = settle_open(cluster, transport, ledger, news)
            states += observer.ask(news)[0]
            going += news
    record(ledger, going, states, certain=observer.trouble is None)
    forget_secrets(cluster, transport, ledger)
    known = {run.run_id: known_state(run) for run in runs}
    known |= {run.run_id: state for run, state in zip(going, states, strict=True)}
    return ClusterAnswer(known, tuple(found), mute or observer.trouble, over)


def newly_ended(runs: Sequence[LedgerRun], states: Sequence[RunState]) -> tuple[StatusRow, ...]:
    """Returns those of active runs that have ended, with their earlier rows."""
    return tuple(
        StatusRow(run, state)
        for run, state in zip(runs, states, strict=True)
        if state.final or state.state is JobState.NOT_SUBMITTED
    )


def record(
    ledger: Ledger, runs: Sequence[LedgerRun], states: Sequence[RunState], *, certain: bool
) -> list[LedgerRun]:
    """Records new states; UNKNOWN only if `certain`, that is, if the scheduler answered.

    Returns:
        The updated ledger rows.
    """
    after = [
        run
        if not run.job_id or (state.state is JobState.UNKNOWN and not certain)
        else replace(
            run,
            state=state.state.value,
            job_id=state.job_id or run.job_id,
            submission=max(run.submission, state.submission or 0),
            last=to_text(state),
        )
        for run, state in zip(runs, states, strict=True)
    ]
    ledger.update(after)
    return after


def ago(seconds: float) -> str:
    """Formats an age in its largest unit, e.g. `3 h ago`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"
