"""Prints what was pulled and uploaded, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import note, print_document, say, warn
from clusterkit.units import format_bytes, plural
from clusterkit.wandb.uploaded import UploadState

if TYPE_CHECKING:
    from rich.table import Table

    from clusterkit.commands.sync import Synced
    from clusterkit.commands.track import Tracked
    from clusterkit.results.pull import PulledRun
    from clusterkit.wandb.uploaded import RunUpload

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
    """The text and its style."""
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
