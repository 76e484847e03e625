"""What sync-results and report say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clusterkit.ui.advice import show_headlines
from clusterkit.ui.console import err, note, out, say
from clusterkit.ui.text import format_bytes
from clusterkit.wandb.upload import UploadState

if TYPE_CHECKING:
    from clusterkit.results.pull import PulledRun
    from clusterkit.verbs.report import Reported
    from clusterkit.verbs.sync import Synced
    from clusterkit.wandb.upload import RunUpload

_STYLES = {
    UploadState.UPLOADED: "green",
    UploadState.LIVE: "green",
    UploadState.WOULD_UPLOAD: "cyan",
    UploadState.FAILED: "bold red",
    UploadState.UP_TO_DATE: "dim",
}

_MANY = 6
"""So many runs that are up to date share a line."""


def show_synced(synced: Synced) -> None:
    """One line a run, or one for many that are up to date; where the results lie; what W&B still needs."""
    uploads: dict[str, list[RunUpload]] = {}
    for upload in synced.uploads:
        uploads.setdefault(upload.run_id, []).append(upload)
    same = [run for run in synced.runs if run.up_to_date and not _any_news(uploads.get(run.run_id, []))]
    alone = [run for run in synced.runs if len(same) < _MANY or run not in same]
    if alone:
        out.print(_table(alone, uploads))
    if len(alone) < len(synced.runs):
        here = format_bytes(sum(run.total_bytes for run in same))
        say(f"{len(same)} {'other ' if alone else ''}runs are up to date, {here} here")
    for run in synced.runs:
        for problem in run.problems:
            err.print(f"[yellow]{escape(run.run_id)}[/]: {escape(problem)}", soft_wrap=True)
    for upload in synced.uploads:
        _show_upload_details(upload)
    note(f"results lie in {synced.results}")
    _show_wandb_advice(synced)


def _any_news(uploads: Sequence[RunUpload]) -> bool:
    return any(upload.state not in (UploadState.UP_TO_DATE, UploadState.NOTHING) for upload in uploads)


def _table(runs: Sequence[PulledRun], uploads: Mapping[str, Sequence[RunUpload]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("new", justify="right", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("here", justify="right", no_wrap=True)
    if uploads:
        table.add_column("W&B")
    for run in runs:
        mine = Text(", ").join(map(_upload_cell, uploads.get(run.run_id, [])))
        if not run.found:
            cells = [Text("not on the cluster", style="yellow"), Text(""), Text("")]
        elif run.up_to_date:
            cells = [Text("up to date", style="dim"), Text(""), Text(format_bytes(run.total_bytes))]
        else:
            new = format_bytes(run.bytes)
            cells = [Text(new, style="green"), Text(str(run.files)), Text(format_bytes(run.total_bytes))]
        table.add_row(Text(run.run_id), *cells, *([mine] if uploads else []))
    return table


def show_reported(reported: Reported) -> None:
    """The final success rates or returns, and the files that were written, one path a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("group", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("steps", justify="right")
    succeeds = any(row.success is not None for row in reported.rows)
    returns = any(row.success is None and row.mean_return is not None for row in reported.rows)
    columns = [*(["success"] if succeeds or not returns else []), *(["return"] if returns else [])]
    for name in (*columns, "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in reported.rows:
        form = ".4g" if row.success is None else ".1%"
        interval = "-" if row.low is None or row.high is None else f"{row.low:{form}} to {row.high:{form}}"
        cells = {
            "success": "-" if row.success is None else f"{row.success:.1%}",
            "return": "-" if row.mean_return is None else f"{row.mean_return:.4g}",
        }
        values = [cells[name] for name in columns]
        table.add_row(Text(row.group), str(row.runs), f"{row.step:,}", *values, interval)
    out.print(table)
    if reported.left_out:
        note(f"nothing to draw, left out: {', '.join(reported.left_out)}")
    for path in reported.files:
        out.print(str(path), markup=False, soft_wrap=True)
    show_headlines(reported.advice)


def _upload_cell(upload: RunUpload) -> Text:
    steps = f" ({upload.history} steps)" if upload.history and upload.state is not UploadState.FAILED else ""
    return Text(f"{upload.state}{steps}", style=_STYLES.get(upload.state, "yellow"))


def _show_upload_details(upload: RunUpload) -> None:
    if upload.url:
        note(upload.url)
    if upload.message:
        colour = "red" if upload.state is UploadState.FAILED else "yellow"
        err.print(f"[{colour}]W&B {escape(upload.run_id)}[/]: {escape(upload.message)}", soft_wrap=True)


def _show_wandb_advice(synced: Synced) -> None:
    running = [upload for upload in synced.uploads if upload.state is UploadState.RUNNING]
    if running:
        note(f"W&B: {len(running)} still running, uploaded when they end; sync again then")
    if synced.waiting_for_key:
        note(
            f"W&B: not uploaded ({synced.waiting_for_key} offline): no key is set; "
            "set WANDB_API_KEY or run `wandb login`, then sync again"
        )
