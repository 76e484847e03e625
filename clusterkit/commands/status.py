"""status: report the state of runs, with one round trip per cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.errors import ClusterkitError, NotAllowedError
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.observe import Observer
from clusterkit.runs.selection import Selection, known_state, settled
from clusterkit.runs.status import (
    Ended,
    StatusReport,
    StatusRow,
    as_remembered,
    ask_cluster,
    choose,
    searched_clusters,
)
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.transport.ahead import LoginAhead


def status(
    settings: Settings,
    ledger: Ledger,
    *,
    names: Sequence[str] = (),
    everything: bool = False,
    selection: Selection = Selection(),  # noqa: B008 - frozen
    login: tuple[str, LoginAhead] | None = None,
    ended: Ended | None = None,
) -> StatusReport:
    """Query the state of runs, in order of submission.

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
