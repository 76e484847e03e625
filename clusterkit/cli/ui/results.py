"""What sync-results and report say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.advice import show_headlines
from clusterkit.cli.ui.console import err, note, out, say
from clusterkit.cli.ui.text import format_bytes, printable
from clusterkit.numbers import beside, percents_beside
from clusterkit.wandb.upload import UploadState

if TYPE_CHECKING:
    from clusterkit.commands.report import Reported, ReportRow
    from clusterkit.commands.sync import Synced
    from clusterkit.report.main_metric import Result
    from clusterkit.results.pull import PulledRun
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
    """What each group came to, and the files that were written, one path a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("group", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("steps", justify="right")
    titles = list(dict.fromkeys(row.result.title for row in reported.rows if row.result))
    for name in (*titles, "95% interval"):
        table.add_column(Text(printable(name)), justify="right", no_wrap=True)
    values = {title: _finals(reported.rows, title) for title in titles}
    for place, row in enumerate(reported.rows):
        finals = [values[title][place] for title in titles]
        table.add_row(Text(row.group), str(row.runs), f"{row.step:,}", *finals, _interval(row.result))
    out.print(table)
    for meaning in dict.fromkeys(row.result.meaning for row in reported.rows if row.result):
        note(meaning)
    if reported.left_out:
        note(f"nothing to draw, left out: {', '.join(reported.left_out)}")
    for path in reported.files:
        out.print(str(path), markup=False, soft_wrap=True)
    show_headlines(reported.advice)


def _finals(rows: Sequence[ReportRow], title: str) -> list[str]:
    """A column of the final numbers of one name; `-` where a group has another one."""
    mine = [row.result if row.result and row.result.title == title else None for row in rows]
    values = [one.point.value if one else None for one in mine]
    return percents_beside(values) if any(one and one.rate for one in mine) else beside(values)


def _interval(found: Result | None) -> str:
    if found is None or found.point.interval is None:
        return "-"
    low, high = found.point.interval
    first, last = percents_beside([low, high]) if found.rate else beside([low, high])
    return f"{first} to {last}"


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
