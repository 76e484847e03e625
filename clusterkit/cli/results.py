"""`clusterkit sync-results` and `clusterkit report`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunsArgument, load, open_ledger
from clusterkit.errors import ConfigError, WandbError
from clusterkit.results.selection import Checkpoints

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.transport.ahead import LoginAhead


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command("sync-results")(sync_results)
    app.command()(report)


def sync_results(
    runs: RunsArgument = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="NAME", help="Only runs there.")
    ] = None,
    checkpoints: Annotated[
        Checkpoints,
        typer.Option(
            metavar="last|best|all|none",
            help="Which checkpoints to bring: the last without its replay data (it can be evaluated and "
            "filmed), the best by its evaluations likewise, all with it (they can be resumed elsewhere), or "
            "none. The final model comes with all of them.",
        ),
    ] = Checkpoints.LAST,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Go on every 30 s until all runs have ended; Ctrl-C stops."),
    ] = False,
    no_wandb: Annotated[bool, typer.Option("--no-wandb", help="Upload nothing to W&B.")] = False,
    wandb_dry_run: Annotated[
        bool, typer.Option("--wandb-dry-run", help="Say what would be uploaded to W&B, and upload nothing.")
    ] = False,
    wandb_entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload to this W&B entity.")
    ] = None,
    wandb_project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload to this W&B project.")
    ] = None,
    bandwidth_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes a second at most, e.g. 5M.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Bring home what is new, then upload to W&B.

    Of all runs or the named ones; nothing here is deleted. Offline W&B runs are uploaded when
    they have ended, with --watch while they go on.
    """
    from clusterkit.units import parse_size

    try:
        limit = parse_size(bandwidth_limit) if bandwidth_limit else None
    except ValueError as error:
        raise ConfigError(f"--bandwidth-limit: {error}") from None
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger, ExitStack() as stack:
        login = None if watch else _log_in_ahead(settings, ledger, runs or (), cluster, stack)

        from clusterkit.cli.ui.console import note
        from clusterkit.cli.ui.progress import transfer_bar
        from clusterkit.cli.ui.results import show_synced
        from clusterkit.commands.sync import SyncRequest
        from clusterkit.commands.sync import sync_results as verb

        request = SyncRequest(
            names=tuple(runs or ()),
            cluster=cluster,
            checkpoints=checkpoints,
            bandwidth_limit=limit,
            wandb=not no_wandb,
            wandb_dry_run=wandb_dry_run,
            wandb_entity=wandb_entity,
            wandb_project=wandb_project,
        )
        if watch:
            from clusterkit.cli.ui.sync_watch import show_sync_watch
            from clusterkit.commands.sync_watch import watch_results

            synced = show_sync_watch(watch_results(settings, request, ledger, bar=transfer_bar))
        else:
            synced = verb(
                settings,
                request,
                ledger,
                bar=transfer_bar,
                login=login,
                tell=lambda text: note(f"W&B: {text}"),
            )
            show_synced(synced)
    if synced.wandb_error:
        raise synced.wandb_error
    if synced.failed_uploads:
        count = f"{synced.failed_uploads} of {len(synced.uploads)}"
        raise WandbError(
            f"{count} W&B uploads failed; the results are here and safe",
            hint="`clusterkit sync-results` tries again and sends only what is missing",
        )


def _log_in_ahead(
    settings: Settings, ledger: Ledger, names: Sequence[str], cluster: str | None, stack: ExitStack
) -> tuple[str, LoginAhead]:
    """Begin the login to the first cluster; while the server is at it, the rest is imported."""
    from clusterkit.results.places import choose_runs, place
    from clusterkit.site import log_in_ahead

    if cluster:
        settings.cluster(cluster)  # an unknown name gets a suggestion
    name, _ = min(map(place, choose_runs(ledger, names, cluster)))
    return name, stack.enter_context(log_in_ahead(settings.cluster(name)))


def report(
    runs: RunsArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where to write the report.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Metric to report, by its logged name; if left out, success, else the return, else the "
            "first one that the program logs.",
        ),
    ] = None,
    advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Write nothing; say what the runs asked for and used, what they waited for, and what would "
            "be faster.",
        ),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Draw learning curves and write one page about runs.

    Of runs that were synced, the last one if none is named; groups of seeds are compared.
    """
    from datetime import UTC, datetime

    from clusterkit.cli.ui.results import show_reported
    from clusterkit.commands.report import find_pulled, report_folder
    from clusterkit.commands.report import report as verb

    settings = load(config)
    if advice:
        from clusterkit.cli.ui.advice import show_advice
        from clusterkit.commands.report import advise_runs

        with open_ledger(settings, only_reads=True, of=runs or ()) as ledger:
            show_advice(advise_runs(find_pulled(settings.project.results, runs or ["last"], ledger)))
        return
    results = settings.project.results
    with open_ledger(settings, only_reads=True, of=runs or ()) as ledger:
        folders = find_pulled(results, runs or ["last"], ledger)
    folder = out or report_folder(results, folders)
    show_reported(verb(folders, folder, now=datetime.now(UTC), metric=metric))
