"""sync-results: pull new results, copy their metrics to trackers, upload ended offline W&B runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.config.permission import RESULTS, TRACKERS
from clusterkit.errors import ClusterkitError, RunError, WandbError
from clusterkit.results.places import choose_runs, place
from clusterkit.results.pull import PulledRun, pull_runs
from clusterkit.results.selection import Checkpoints
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.site import connected
from clusterkit.transport.base import ProgressCallback, Transport
from clusterkit.wandb.ledger import RunUpload, UploadState

if TYPE_CHECKING:
    from clusterkit.commands.track import Tracked
    from clusterkit.config.settings import Settings
    from clusterkit.runs.run_dir import RunDirectory
    from clusterkit.transport.ahead import LoginAhead
    from clusterkit.transport.base import Bar


@dataclass(frozen=True)
class SyncRequest:
    """The user's options."""

    names: tuple[str, ...] = ()
    """Runs, as `Ledger.find` takes them; empty for all."""
    cluster: str | None = None
    """Only runs of this cluster."""
    checkpoints: Checkpoints = Checkpoints.LAST
    bandwidth_limit: int | None = None
    """Limit in bytes per second."""
    wandb: bool = True
    wandb_dry_run: bool = False
    wandb_live: bool = False
    """Whether to upload the logs so far of runs that have not ended, too."""
    wandb_entity: str | None = None
    wandb_project: str | None = None
    trackers: Mapping[str, str] = field(default_factory=dict)
    """Places of trackers by name, instead of those in the settings."""


@dataclass(frozen=True)
class Synced:
    """The pulled runs, and what trackers and W&B got of them."""

    results: Path
    runs: tuple[PulledRun, ...]
    uploads: tuple[RunUpload, ...] = ()
    waiting_for_key: int = 0
    """Number of offline W&B logs skipped because there is no key."""
    wandb_error: WandbError | None = None
    """The error that stopped the uploads; the pulled files are unaffected."""
    tracked: tuple[Tracked, ...] = ()
    unreached: Mapping[str, ClusterkitError] = field(default_factory=dict)
    """Why nothing was pulled from a cluster, by its name; others were."""

    def faults(self) -> list[ClusterkitError]:
        """Returns the errors of which the command is to tell; the first decides its exit code."""
        errors: list[ClusterkitError] = [*self.unreached.values()]
        lacking = [run for run in self.runs if run.lost]
        if lacking:
            files = sum(run.lost for run in lacking)
            errors.append(
                ClusterkitError(
                    f"{files} {'file' if files == 1 else 'files'} of {lacking[0].run_id}"
                    f"{f' and {len(lacking) - 1} more' if len(lacking) > 1 else ''} did not fit on the disk "
                    "or arrived damaged",
                    hint="free space, or look at the file on the cluster; then sync again",
                )
            )
        errors += [tracked.error for tracked in self.tracked if tracked.error]
        errors += [self.wandb_error] if self.wandb_error else []
        failed = sum(upload.state is UploadState.FAILED for upload in self.uploads)
        if failed and not self.wandb_error:
            errors.append(
                WandbError(
                    f"{failed} of {len(self.uploads)} W&B uploads failed; their logs are here and safe",
                    hint="`clusterkit sync-results` tries again and sends only what is missing",
                )
            )
        return errors


def sync_results(
    settings: Settings,
    request: SyncRequest,
    ledger: Ledger,
    *,
    bar: Bar,
    login: tuple[str, LoginAhead] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] = os.environ,
) -> Synced:
    """Mirrors runs to the results folder with one login per cluster, then to trackers and W&B.

    A cluster that fails does not stop the others; if all fail, the first error is raised.

    Args:
        settings: of the project.
        request: what to pull and whether to upload.
        ledger: of the project; also records uploads.
        bar: opens progress bars.
        login: a cluster and a login to it already in progress; other clusters are logged in to as needed.
        tell: called with a line about an upload that starts or takes long, or about waiting.
        environment: environment variables, which may contain the W&B key.

    Raises:
        ConfigError: the cluster is unknown, or the project writes elsewhere and the user has not allowed it.
        RunError: a run is unknown, or there are no runs.
        TransportError: a cluster cannot be reached or a transfer was interrupted; repeat to continue.
    """
    if request.cluster:
        settings.cluster(request.cluster)  # an unknown name gets a suggestion
    runs = choose_runs(ledger, request.names, request.cluster)
    results = results_to_write(settings, request)
    pulled: list[PulledRun] = []

    def waiting() -> None:
        tell("another sync-results is writing to the results folder; waiting for it")

    unreached: dict[str, ClusterkitError] = {}
    clusters: dict[str, list[LedgerRun]] = {}
    for run in sorted(runs, key=place):
        clusters.setdefault(run.cluster, []).append(run)
    for cluster, there in clusters.items():
        try:
            with (
                connected(settings.cluster(cluster), login=login) as transport,
                bar(f"results from {cluster}", None) as progress,
            ):
                for some in pull_there(
                    transport, there, request, results, progress=progress, waiting=waiting
                ):
                    pulled += some
        except ClusterkitError as error:
            unreached[cluster] = error
    if len(unreached) == len(clusters):
        raise next(iter(unreached.values()))
    order = {run.run_id: number for number, run in enumerate(runs)}
    synced = Synced(results, tuple(sorted(pulled, key=lambda run: order[run.run_id])), unreached=unreached)
    synced = replace(synced, tracked=copy_to_trackers(settings, request, runs, waiting, tell))
    if not request.wandb:
        return synced
    return upload(synced, request, ledger, runs, lambda text: tell(f"W&B: {text}"), environment)


def results_to_write(settings: Settings, request: SyncRequest) -> Path:
    """Returns the folder of results, once the user has allowed what a sync writes outside the project.

    Raises:
        NotAllowedError: the user has not.
    """
    of_settings = settings.project.trackers.keys() - request.trackers.keys()
    settings.permission.require([RESULTS, *((*TRACKERS, name) for name in of_settings)])
    return settings.project.results


def pull_there(
    transport: Transport,
    runs: Iterable[LedgerRun],
    request: SyncRequest,
    results: Path,
    *,
    progress: ProgressCallback | None,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[list[PulledRun]]:
    """Pulls runs of one cluster; yields after each folder of runs there.

    Args:
        transport: to the cluster.
        runs: of the cluster.
        request: which checkpoints to pull, and how fast.
        results: the local folder.
        progress: called with the bytes so far.
        waiting: called while another process pulls into the folder.
    """
    for (_, root), group in groupby(sorted(runs, key=place), key=place):
        yield pull_runs(
            transport,
            runs_root=root,
            run_ids=[run.run_id for run in group],
            results=results,
            checkpoints=request.checkpoints,
            bandwidth_limit=request.bandwidth_limit,
            progress=progress,
            waiting=waiting,
        )


def copy_to_trackers(
    settings: Settings,
    request: SyncRequest,
    runs: Sequence[LedgerRun],
    waiting: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Tracked, ...]:
    """Copies what is new of some runs' metrics to the trackers; see `track`."""
    project = settings.project
    places = {**project.trackers, **request.trackers}
    if not places:
        return ()
    from clusterkit.commands.track import track  # imports much that few need, as `upload` does

    return track(runs, project, places, waiting=waiting, tell=tell)


def upload(
    synced: Synced,
    request: SyncRequest,
    ledger: Ledger,
    runs: Sequence[LedgerRun],
    tell: Callable[[str], None],
    environment: Mapping[str, str],
) -> Synced:
    """Uploads the pulled offline W&B runs; returns `synced` with the results. See `sync_results`."""
    from clusterkit.wandb.log import find_logs

    here = {run.run_id: synced.results / run.run_id for run in synced.runs if run.found}
    logs = {run_id: len(find_logs(path)) for run_id, path in here.items()}
    if not any(logs.values()) and not any(find_logs(path, online=True) for path in here.values()):
        return synced
    from clusterkit import folders
    from clusterkit.wandb import server
    from clusterkit.wandb.ledger import SqliteUploads
    from clusterkit.wandb.plan import outcome_of
    from clusterkit.wandb.upload import UploadTarget, upload_runs

    states = {run.run_id: run.state for run in runs}
    uploads: list[RunUpload] = []
    try:
        credentials = server.find_credentials(environment, folders.home_or_root())
        if credentials is None:
            return replace(synced, waiting_for_key=sum(logs.values()))
        for upload in upload_runs(
            here,
            outcome=lambda run_id: outcome_of(states[run_id], _directory(here[run_id])),
            target=UploadTarget(credentials, request.wandb_entity, request.wandb_project),
            ledger=SqliteUploads(ledger.connection),
            live=request.wandb_live,
            dry_run=request.wandb_dry_run,
            tell=tell,
        ):
            uploads.append(upload)  # kept even if a later one stops all uploads
    except WandbError as error:
        return replace(synced, uploads=tuple(uploads), wandb_error=error)
    return replace(synced, uploads=tuple(uploads))


def _directory(path: Path) -> RunDirectory | None:
    from clusterkit.runs.run_dir import read_run_dir

    try:
        return read_run_dir(path)
    except RunError:
        return None  # the pull has already reported the missing run.json
