"""sync-results --watch: pull what runs write while they run, over one connection per cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.commands.sync import (
    Synced,
    SyncRequest,
    copy_to_trackers,
    pull_there,
    results_to_write,
    sync_results,
    upload,
)
from clusterkit.commands.track import joined
from clusterkit.errors import TransportError
from clusterkit.results.places import choose_runs
from clusterkit.results.pull import PulledRun
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.selection import Selection, settled
from clusterkit.runs.status import Ended, StatusReport, StatusRow, as_remembered, searched_clusters
from clusterkit.runs.watching import Paces, Watched, watch
from clusterkit.transport.base import Transport
from clusterkit.wandb.log import find_logs

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Bar

PACES = Paces(scheduler=30.0, heartbeat=30.0, local=5.0)
"""The scheduler and the run directories are read together, so each pull is of one moment."""


@dataclass(frozen=True)
class SyncLook:
    """One look."""

    watched: Watched
    news: tuple[PulledRun, ...]
    """The runs pulled by it that had something new."""
    synced: Synced
    """Everything pulled and uploaded since the watch began."""


def watch_results(
    settings: Settings,
    request: SyncRequest,
    ledger: Ledger,
    *,
    bar: Bar,
    environment: Mapping[str, str] = os.environ,
    paces: Paces = PACES,
    ended: Ended | None = None,
) -> Iterator[SyncLook]:
    """Syncs runs repeatedly until none of them is active.

    The first look pulls all selected runs, later ones only active runs. A run is pulled once more after it
    has ended; then its offline W&B runs are uploaded. Trackers get what each look brings. A broken
    connection is replaced unless that would need the user.

    Args:
        settings: of the project.
        request: as for `sync_results`; without names, runs submitted in the meantime join.
        ledger: knows the runs; new states are recorded.
        bar: opens progress bars, for the first look.
        environment: where the W&B key may be.
        paces: how often to look.
        ended: called with runs that have ended, at the look that finds it.

    Raises:
        ConfigError: the cluster is not known.
        RunError: a run is not known, or there are none.
        TransportError: a cluster refuses the login, or could not be reached when a run had ended.
    """
    if request.cluster:
        settings.cluster(request.cluster)  # an unknown name gets a suggestion
    chosen = choose_runs(ledger, request.names, request.cluster)
    selection = Selection(clusters=frozenset({request.cluster} if request.cluster else ()))
    going = [run for run in chosen if not settled(run)]
    visited = {run.cluster for run in going}
    visited |= set() if request.names else searched_clusters(settings, selection)
    follower = _UploadFollower(settings, request, ledger, chosen, bar, environment)
    follower.once([run for run in chosen if run.cluster not in visited])
    if not visited:
        rows = tuple(StatusRow(run, as_remembered(run)) for run in chosen)
        watched = Watched(StatusReport(rows, silent={}), {}, over=True)
        yield SyncLook(watched, follower.take_news(), follower.synced)
    else:
        names = [run.run_id for run in going] if request.names else ()
        looks = watch(
            settings,
            ledger,
            names=names,
            selection=selection,
            paces=paces,
            also=follower.pull,
            ended=ended,
        )
        for watched in looks:
            follower.upload()
            yield SyncLook(watched, follower.take_news(), follower.synced)
        silent = watched.report.silent
        follower.once(follower.unfinished(frozenset(silent)))
        follower.upload()  # what the last look could not
        yield SyncLook(watched, follower.take_news(), follower.synced)
        for name, why in silent.items():
            raise TransportError(
                f"{name}: {why}", hint="`clusterkit sync-results --watch` continues from here"
            )


class _UploadFollower:
    """Pulls, copies and uploads what is new at each look."""

    def __init__(
        self,
        settings: Settings,
        request: SyncRequest,
        ledger: Ledger,
        chosen: Sequence[LedgerRun],
        bar: Bar,
        environment: Mapping[str, str],
    ) -> None:
        self._settings, self._request, self._ledger = settings, request, ledger
        self._chosen, self._bar, self._environment = chosen, bar, environment
        self._visited: set[str] = set()
        self._whole: set[str] = set()
        """Runs that were pulled after their end."""
        self._to_upload: dict[str, PulledRun] = {}
        self._news: list[PulledRun] = []
        self._runs: dict[str, PulledRun] = {}
        self.synced = Synced(results_to_write(settings, request), ())

    def pull(self, cluster: str, transport: Transport, runs: Sequence[LedgerRun]) -> None:
        """Pulls what is new; at the first look at a cluster, from all selected runs."""
        first = cluster not in self._visited
        ids = {run.run_id: None for run in (*self._chosen, *runs) if run.cluster == cluster}
        in_ledger = [self._ledger.get(run_id) for run_id in ids if run_id not in self._whole]
        wanted = [run for run in in_ledger if run is not None]
        ended = {run.run_id for run in wanted if settled(run)}
        results = self._settings.project.results
        with self._bar(f"results from {cluster}", None) if first and wanted else nullcontext() as progress:
            for pulled in pull_there(transport, wanted, self._request, results, progress=progress):
                self._whole |= ended & {run.run_id for run in pulled}
                self._to_upload |= {run.run_id: run for run in pulled if run.files or run.run_id in ended}
                self._note(pulled)
        self._visited.add(cluster)

    def once(self, runs: Sequence[LedgerRun]) -> None:
        """Syncs runs that are not being watched."""
        if not runs:
            return
        request = replace(self._request, names=tuple(run.run_id for run in runs))
        synced = sync_results(
            self._settings, request, self._ledger, bar=self._bar, environment=self._environment
        )
        self._whole |= {run.run_id for run in runs}
        self._note(synced.runs)
        self._join(synced, {run.run_id: run for run in synced.runs})

    def unfinished(self, silent: frozenset[str]) -> list[LedgerRun]:
        """Returns ended runs on answering clusters that have not been pulled since their end."""
        pulled = [self._ledger.get(run_id) for run_id in self._runs.keys() - self._whole]
        return [run for run in pulled if run is not None and settled(run) and run.cluster not in silent]

    def upload(self) -> None:
        """Copies and upload what was pulled since the last call, also of active runs."""
        pulled, self._to_upload = self._to_upload, {}
        if not pulled:
            return
        in_ledger = [self._ledger.get(run_id) for run_id in pulled]
        runs = [run for run in in_ledger if run is not None]
        tracked = copy_to_trackers(self._settings, self._request, runs)
        synced = Synced(self._settings.project.results, tuple(pulled.values()), tracked=tracked)
        if self._request.wandb:
            request = replace(self._request, wandb_live=True)
            synced = upload(synced, request, self._ledger, runs, lambda _: None, self._environment)
        self._join(synced, pulled)

    def take_news(self) -> tuple[PulledRun, ...]:
        """Returns what was pulled since the last call."""
        news, self._news = self._news, []
        return tuple(news)

    def _note(self, pulled: Sequence[PulledRun]) -> None:
        for run in pulled:
            before = self._runs.get(run.run_id)
            files = run.files + (before.files if before else 0)
            size = run.bytes + (before.bytes if before else 0)
            lost = max(run.lost, before.lost if before else 0)
            self._runs[run.run_id] = replace(run, files=files, bytes=size, lost=lost)
        self._news += [run for run in pulled if run.files]
        self.synced = replace(self.synced, runs=tuple(self._runs.values()))

    def _join(self, synced: Synced, tried: Mapping[str, PulledRun]) -> None:
        if synced.wandb_error or any(result.error for result in synced.tracked):
            self._to_upload = {**tried, **self._to_upload}  # the next look tries again
        uploads = {
            (result.run_id, result.wandb_run_id): result for result in (*self.synced.uploads, *synced.uploads)
        }
        self.synced = replace(
            self.synced,
            uploads=tuple(uploads.values()),
            waiting_for_key=self._logs() if synced.waiting_for_key else self.synced.waiting_for_key,
            wandb_error=synced.wandb_error,
            tracked=joined(self.synced.tracked, synced.tracked),
            unreached={**self.synced.unreached, **synced.unreached},
        )

    def _logs(self) -> int:
        """Returns the number of offline W&B logs in all pulled runs; a single look knows only some."""
        results = self._settings.project.results
        return sum(len(find_logs(results / run_id)) for run_id in self._runs)
