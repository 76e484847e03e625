"""`clusterkit sync-results`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.notify import show_faults
from clusterkit.cli.ui.console import note, print_document, say, show_error, transfer_bar, warn
from clusterkit.commands.notifier import Notifier
from clusterkit.project import load, open_ledger
from clusterkit.results.selection import Checkpoints
from clusterkit.trackers import BUILT_IN, tracker_named
from clusterkit.units import format_bytes, parse_size, parsed, plural
from clusterkit.wandb.ledger import UploadState

if TYPE_CHECKING:
    from rich.table import Table

    from clusterkit.commands.sync import Synced
    from clusterkit.commands.sync_watch import SyncLook
    from clusterkit.commands.track import Tracked
    from clusterkit.config.settings import Settings
    from clusterkit.results.pull import PulledRun
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.watching import Watched
    from clusterkit.transport.ahead import LoginAhead
    from clusterkit.wandb.ledger import RunUpload


def _with_trackers(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each built-in tracker, which it takes by keyword."""
    written = signature(command, eval_str=True)
    added = []
    for name in BUILT_IN:
        tracker = tracker_named(name)
        kind = Annotated[str | None, typer.Option(metavar=tracker.metavar, help=tracker.help)]
        added.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind))
    *others, _ = written.parameters.values()
    command.__signature__ = written.replace(parameters=[*others, *added])  # type: ignore[attr-defined]
    return command


@_with_trackers
def sync_results(
    runs: options.Runs = None,
    cluster: options.OnlyCluster = None,
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
    bandwidth_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Maximum bytes per second, e.g. 5M.")
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
    **trackers: str | None,
) -> None:
    """Download new results, then upload them to W&B.

    Downloads the results of all runs, or of those named, and deletes nothing here. Offline W&B runs are
    uploaded once they have ended, or with --watch while they run. Metrics are copied to the
    trackers for which the settings or options say where.

    Examples:
      # what is new in all runs, then W&B
      clusterkit sync-results
      # while the run goes on
      clusterkit sync-results last --watch
      # with replay data, at a limited rate
      clusterkit sync-results --checkpoints all --bandwidth-limit 10M
      # show what would be uploaded to W&B
      clusterkit sync-results --wandb-dry-run

    See also: clusterkit report, clusterkit storage clean, wandb.md
    """
    from clusterkit.config.values import tracker_place

    places = {
        name: parsed(f"--{name}", partial(tracker_place, name, folder=Path.cwd()), text)
        for name, text in trackers.items()
        if text is not None
    }
    limit = parsed("--bandwidth-limit", parse_size, bandwidth_limit) if bandwidth_limit else None
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger, ExitStack() as stack:
        notifier = Notifier(settings, ledger)
        stack.callback(show_faults, notifier)
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
            trackers=places,
        )
        if watch:
            from clusterkit.commands.sync_watch import watch_results

            looks = watch_results(settings, request, ledger, bar=transfer_bar, ended=notifier.tell)
            synced = follow_quietly(looks) if as_json else show_sync_watch(looks, also=notifier.foot)
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


_STYLES = {
    UploadState.UPLOADED: "green",
    UploadState.LIVE: "green",
    UploadState.WOULD_UPLOAD: "cyan",
    UploadState.FAILED: "bold red",
    UploadState.UP_TO_DATE: "dim",
}


_MANY = 6
"""At least this many up-to-date runs share a line."""
_MOST_FAILED = 10
"""Most runs named that a tracker has not got."""


def show_synced(synced: Synced) -> None:
    """Prints a line per run, or one for many up-to-date runs, the results folder and what W&B still needs."""
    uploads: dict[str, list[RunUpload]] = {}
    for upload in synced.uploads:
        uploads.setdefault(upload.run_id, []).append(upload)
    same = {run.run_id: run for run in synced.runs if _is_same(run, uploads.get(run.run_id, []))}
    alone = [run for run in synced.runs if len(same) < _MANY or run.run_id not in same]
    if alone:
        from clusterkit.cli.ui.console import out

        out.print(_table(alone, uploads))
    if len(alone) < len(synced.runs):
        here = format_bytes(sum(run.total_bytes for run in same.values()))
        say(f"{len(same)} {'other ' if alone else ''}runs are up to date, {here} here")
    for run in synced.runs:
        for problem in run.problems:
            warn(run.run_id, f": {problem}")
    for upload in synced.uploads:
        _show_upload_details(upload)
    note(f"results lie in {synced.results}")
    for tracked in synced.tracked:
        _show_tracked(tracked)
    _show_wandb_advice(synced)


def _is_same(run: PulledRun, uploads: Sequence[RunUpload]) -> bool:
    still = (UploadState.UP_TO_DATE, UploadState.NOTHING)
    return run.up_to_date and all(upload.state in still for upload in uploads)


def _table(runs: Sequence[PulledRun], uploads: Mapping[str, Sequence[RunUpload]]) -> Table:
    from rich.text import Text  # not imported where nothing is new

    from clusterkit.cli.ui.lines import plain_table

    table = plain_table("run", "new", "files", "here", right=("new", "files", "here"), padding=(0, 1))
    if uploads:
        table.add_column("W&B")
    for run in runs:
        mine = Text(", ").join(Text(*_upload_cell(upload)) for upload in uploads.get(run.run_id, []))
        if not run.found:
            cells = [Text("not on the cluster", style="yellow"), Text(""), Text("")]
        elif run.up_to_date:
            cells = [Text("up to date", style="dim"), Text(""), Text(format_bytes(run.total_bytes))]
        else:
            new = format_bytes(run.bytes)
            cells = [Text(new, style="green"), Text(str(run.files)), Text(format_bytes(run.total_bytes))]
        table.add_row(Text(run.run_id), *cells, *([mine] if uploads else []))
    return table


def _upload_cell(upload: RunUpload) -> tuple[str, str]:
    """Returns the text and its style."""
    steps = f" ({upload.history} steps)" if upload.history and upload.state is not UploadState.FAILED else ""
    return f"{upload.state}{steps}", _STYLES.get(upload.state, "yellow")


def _show_upload_details(upload: RunUpload) -> None:
    if upload.url:
        note(upload.url)
    if upload.message:
        colour = "red" if upload.state is UploadState.FAILED else "yellow"
        warn(f"W&B {upload.run_id}", f": {upload.message}", colour=colour)


def _show_tracked(tracked: Tracked) -> None:
    if tracked.runs:
        note(f"{tracked.tracker}: {plural(len(tracked.runs), 'run')} brought up to date in {tracked.where}")
    for run_id, why in islice(tracked.failed.items(), _MOST_FAILED):
        warn(f"{tracked.tracker} {run_id}", f": {why}")
    if len(tracked.failed) > _MOST_FAILED:
        warn(f"{tracked.tracker}", f": {len(tracked.failed) - _MOST_FAILED} more runs failed")


def _show_wandb_advice(synced: Synced) -> None:
    running = [upload for upload in synced.uploads if upload.state is UploadState.RUNNING]
    if running:
        note(f"W&B: {len(running)} still running, uploaded when they end; sync again then")
    if synced.waiting_for_key:
        note(
            f"W&B: not uploaded ({synced.waiting_for_key} offline): no key is set; "
            "set WANDB_API_KEY or run `wandb login`, then sync again"
        )


def print_json(synced: Synced) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "results": str(synced.results),
            "runs": [
                {
                    "run_id": run.run_id,
                    "found": run.found,
                    "files": run.files,
                    "bytes": run.bytes,
                    "total_bytes": run.total_bytes,
                    "problems": list(run.problems),
                }
                for run in synced.runs
            ],
            "uploads": [
                {
                    "run_id": upload.run_id,
                    "wandb_run_id": upload.wandb_run_id,
                    "state": upload.state,
                    "history": upload.history,
                    "message": upload.message or None,
                    "url": upload.url,
                }
                for upload in synced.uploads
            ],
            "waiting_for_key": synced.waiting_for_key,
            "trackers": [
                {
                    "tracker": tracked.tracker,
                    "where": tracked.where,
                    "runs": list(tracked.runs),
                    "failed": [{"run_id": run_id, "error": why} for run_id, why in tracked.failed.items()],
                    "error": tracked.error and tracked.error.cause,
                }
                for tracked in synced.tracked
            ],
        }
    )


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
