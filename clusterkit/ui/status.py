"""The table of runs, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.scheduler import JobState
from clusterkit.ui.console import err, note, out
from clusterkit.ui.text import format_count, format_seconds

if TYPE_CHECKING:
    from clusterkit.verbs.status import StatusReport, StatusRow

_COLOURS = {
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.PENDING: "yellow",
    JobState.CANCELLED: "dim",
    JobState.PREEMPTED: "yellow",
}
_COLUMNS = {
    "run": False,
    "cluster": False,
    "state": False,
    "progress": False,
    "steps/s": True,
    "left": True,
    "success": True,
}
"""Column -> whether it is aligned to the right."""
_BAR = 10
_WIDE = 130
"""Columns of the terminal from which on there is room for bars and reasons."""


def show_status(report: StatusReport) -> None:
    """One line a run; why it waits or failed stands beside it, or below where the terminal is narrow."""
    for cluster, cause in report.silent.items():
        err.print(f"[yellow]{cluster} gives no answer:[/]", end=" ")
        err.print(cause, markup=False, soft_wrap=True)
    if not report.rows:
        note("no runs yet; `clusterkit submit` starts one")
        return
    wide = not out.is_terminal or out.width >= _WIDE
    out.print(status_table(report.rows, wide=wide))
    for row in report.rows:
        if row.state.why and not wide:
            out.print(Text.assemble((row.run.run_id, "bold"), f": {row.state.why}"))
    if report.left_out:
        note(f"{report.left_out} older runs are not shown; --all shows them")


def status_table(rows: Sequence[StatusRow], *, wide: bool) -> Table:
    """The table itself, also for live views; `wide` adds the bar and the column of reasons."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, right in _COLUMNS.items():
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    if wide:
        table.add_column("why", style="dim", overflow="fold")
    for row in rows:
        state = row.state
        cells: list[str | Text] = [
            row.run.run_id,
            row.run.cluster,
            Text(state.state.value, style=_COLOURS.get(state.state, "red")),
            _progress(row, bar=wide),
            f"{state.steps_per_second:,.0f}" if state.steps_per_second else "",
            format_seconds(state.eta_seconds) if state.eta_seconds is not None else "",
            f"{state.success:.0%}" if state.success is not None else "",
        ]
        table.add_row(*cells, *((Text(state.why or ""),) if wide else ()))
    return table


def _progress(row: StatusRow, *, bar: bool) -> Text:
    if row.state.progress is None:
        return Text(format_count(row.run.total_steps) if row.run.total_steps else "", style="dim")
    share = row.state.progress if row.state.progress == 1 else min(row.state.progress, 0.99)
    text = Text(f"{int(share * 100):>3}% of {format_count(row.run.total_steps)}")
    if not bar:
        return text
    filled = round(row.state.progress * _BAR)
    return Text("━" * filled, style="green") + Text("━" * (_BAR - filled), style="grey37") + Text(" ") + text


def print_json(report: StatusReport) -> None:
    """A list of objects on standard output; see docs/commands.md."""
    rows = [{**asdict(row.run), **asdict(row.state)} for row in report.rows]
    out.file.write(json.dumps({"schema": 1, "runs": rows, "silent": report.silent}, indent=2) + "\n")
