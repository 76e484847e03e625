"""Where runs of a cluster stand, in one round trip, and what the ledger remembers of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.probes.framing import shell_path
from clusterkit.runs.adopt import adopt
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.roster import roster
from clusterkit.runs.selection import Selection, known_state, recent, settled
from clusterkit.runs.settling import settle_open
from clusterkit.runs.state import RunState, to_text

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class StatusRow:
    """One run and where it stands."""

    run: LedgerRun
    state: RunState


@dataclass(frozen=True)
class StatusReport:
    """All runs asked for, oldest first, and the clusters that gave no answer."""

    rows: tuple[StatusRow, ...]
    silent: Mapping[str, str]
    """Cluster -> why; its rows show the last state known here."""
    mute: Mapping[str, str] = field(default_factory=dict)
    """Cluster -> why its scheduler gave no answer; its run directories did."""
    found: Mapping[str, int] = field(default_factory=dict)
    """Cluster -> how many runs lay there that the ledger did not know."""
    left_out: int = 0
    """Older runs that were not asked for."""
    known: int = 0
    """Runs in the ledger, shown or not."""

    @property
    def nothing_learnt(self) -> bool:
        """No run is known, and not every cluster that may have some has answered."""
        return not self.rows and not self.known and bool(self.silent)


@dataclass(frozen=True)
class ClusterAnswer:
    """What one cluster said."""

    states: Mapping[str, RunState]
    """By run id."""
    found: tuple[LedgerRun, ...]
    """Runs that are news to the ledger."""
    mute: str | None
    """Why its scheduler gave no answer."""


def choose(
    ledger: Ledger, *, names: Sequence[str], everything: bool, selection: Selection
) -> list[LedgerRun]:
    """The runs that are meant; see `clusterkit.commands.status`."""
    if names:
        return [run for run in ledger.find(names) if selection.matches(run)]
    known = ledger.runs()
    if everything or selection:
        return [run for run in known if selection.matches(run)]
    return recent(known)


def searched_clusters(settings: Settings, selection: Selection) -> frozenset[str]:
    """Clusters to search for runs that nobody here knows.

    Raises:
        ConfigError: there is no such cluster.
    """
    if selection.clusters:
        return frozenset(settings.cluster(name).name for name in selection.clusters)
    return frozenset({settings.cluster().name})


def as_remembered(run: LedgerRun) -> RunState:
    """The last known state of a run that cannot be asked about; what it was about to do then is left out."""
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
    """One round trip; more only for submissions that broke off and for runs that are news here.

    Args:
        settings: of the project.
        ledger: what is learned is recorded.
        observer: of the cluster.
        runs: of the cluster.
        search: look for runs that the ledger does not know.

    Raises:
        ClusterkitError: there was no answer, or half of one.
    """
    cluster, transport = observer.cluster, observer.transport
    runs = settle_open(cluster, transport, ledger, runs)
    going, ended = [run for run in runs if not settled(run)], [run for run in runs if settled(run)]
    folder = f"{shell_path(cluster.root.rstrip('/'))}/runs"
    listing = roster(folder, ((run.run_dir, run.submission) for run in ended))
    states, answers = observer.ask(going, *([listing] if search else []))
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
    known = {run.run_id: known_state(run) for run in runs}
    known |= {run.run_id: state for run, state in zip(going, states, strict=True)}
    return ClusterAnswer(known, tuple(found), mute or observer.trouble)


def record(
    ledger: Ledger, runs: Sequence[LedgerRun], states: Sequence[RunState], *, certain: bool
) -> list[LedgerRun]:
    """Remember what was learned. A state nobody knows is no news where the scheduler was not `certain`.

    Returns:
        The runs as the ledger has them now.
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
    """How long ago something was, in its largest unit."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"
