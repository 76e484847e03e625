"""`clusterkit sync-results`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    JsonOption,
    OnlyClusterOption,
    RunsArgument,
    load,
    open_ledger,
    parsed,
)
from clusterkit.cli.ui.console import note, show_error
from clusterkit.cli.ui.notices import Notices
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.cli.ui.synced import print_json, show_synced
from clusterkit.results.selection import Checkpoints
from clusterkit.units import format_bytes, parse_size, plural

if TYPE_CHECKING:
    from clusterkit.commands.sync import Synced
    from clusterkit.commands.sync_watch import SyncLook
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.watching import Watched
    from clusterkit.transport.ahead import LoginAhead


def sync_results(
    runs: RunsArgument = None,
    cluster: OnlyClusterOption = None,
    checkpoints: Annotated[
        Checkpoints,
        typer.Option(
            metavar="last|best|all|none",
            help="Checkpoints to download: the last or the best one, without replay data (enough to evaluate "
            "and film it); all, with replay data (enough to resume elsewhere); or none. The final model is "
            "always included.",
        ),
    ] = Checkpoints.LAST,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Repeat every 30 s until all runs have ended; Ctrl-C exits."),
    ] = False,
    no_wandb: Annotated[bool, typer.Option("--no-wandb", help="Upload nothing to W&B.")] = False,
    wandb_dry_run: Annotated[
        bool, typer.Option("--wandb-dry-run", help="Show what would be uploaded to W&B; upload nothing.")
    ] = False,
    wandb_entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload to this W&B entity.")
    ] = None,
    wandb_project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload to this W&B project.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write TensorBoard event files to this folder.")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Log to MLflow: a folder, sqlite:///FILE, or a server's address."),
    ] = None,
    bandwidth_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Maximum bytes per second, e.g. 5M.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Download new results, then upload them to W&B.

    Downloads the results of all runs, or of those named, and deletes nothing here. Offline W&B runs are
    uploaded once they have ended, or with --watch while they run. Metrics are copied to TensorBoard and
    MLflow if the settings or options say where.
    """
    from clusterkit.config.values import tracking_uri

    place = parsed("--mlflow", lambda text: tracking_uri(text, Path.cwd()), mlflow) if mlflow else None
    limit = parsed("--bandwidth-limit", parse_size, bandwidth_limit) if bandwidth_limit else None
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger, ExitStack() as stack:
        notices = Notices(settings, ledger)
        stack.callback(notices.show_faults)
        login = None if watch else _log_in_ahead(settings, ledger, runs or (), cluster, stack)

        from clusterkit.commands.sync import SyncRequest
        from clusterkit.commands.sync import sync_results as command

        request = SyncRequest(
            names=tuple(runs or ()),
            cluster=cluster,
            checkpoints=checkpoints,
            bandwidth_limit=limit,
            wandb=not no_wandb,
            wandb_dry_run=wandb_dry_run,
            wandb_entity=wandb_entity,
            wandb_project=wandb_project,
            tensorboard=tensorboard and tensorboard.absolute(),
            mlflow=place,
        )
        if watch:
            from clusterkit.commands.sync_watch import watch_results

            looks = watch_results(settings, request, ledger, bar=transfer_bar, ended=notices.ended)
            synced = follow_quietly(looks) if as_json else show_sync_watch(looks, also=notices.foot)
        else:
            synced = command(
                settings,
                request,
                ledger,
                bar=transfer_bar,
                login=login,
                tell=note,
            )
            (print_json if as_json else show_synced)(synced)
    faults = synced.faults()
    for fault in faults[1:]:
        show_error(fault)
    if faults:
        raise faults[0]


def _log_in_ahead(
    settings: Settings, ledger: Ledger, names: Sequence[str], cluster: str | None, stack: ExitStack
) -> tuple[str, LoginAhead] | None:
    """Starts the login to the first cluster, which then runs during the remaining imports.

    Returns None if the settings no longer have that cluster.
    """
    from clusterkit.results.places import choose_runs, place
    from clusterkit.site import log_in_ahead

    if cluster:
        settings.cluster(cluster)  # an unknown name gets a suggestion
    name, _ = min(map(place, choose_runs(ledger, names, cluster)))
    if name not in settings.clusters:
        return None
    return name, stack.enter_context(log_in_ahead(settings.cluster(name)))


def show_sync_watch(looks: Iterator[SyncLook], *, also: Callable[[], str] = str) -> Synced:
    """Shows updates until they end; the last one and a summary stay on the screen, even after Ctrl-C.

    On a terminal, what `also` returns is shown below the table.
    """
    from clusterkit.cli.ui.watch import show_watch

    seen: list[SyncLook] = []

    def watched() -> Iterator[Watched]:
        for look in looks:
            seen[:] = [look]
            yield look.watched

    try:
        show_watch(
            watched(),
            expand=False,
            as_json=False,
            foot=lambda: "; ".join(filter(None, (_foot(seen[-1]), also()))),
        )
    finally:
        if seen:
            show_synced(seen[-1].synced)
    return seen[-1].synced


def follow_quietly(looks: Iterator[SyncLook]) -> Synced:
    """Prints one JSON object when the updates end, also by Ctrl-C."""
    seen: list[Synced] = []
    try:
        for look in looks:
            seen[:] = [look.synced]
    finally:
        if seen:
            print_json(seen[-1])
    return seen[-1]


def _foot(look: SyncLook) -> str:
    total = sum(run.bytes for run in look.synced.runs)
    here = f"{format_bytes(total)} brought home"
    if not look.news:
        return f"{here}; nothing new at the last look"
    files = sum(run.files for run in look.news)
    size = format_bytes(sum(run.bytes for run in look.news))
    return f"{here}; {size} in {plural(files, 'file')} at the last look"
