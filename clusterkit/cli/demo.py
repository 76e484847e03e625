"""`clusterkit demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from clusterkit.cli.common import ConfigOption, load, open_ledger
from clusterkit.cli.ui.console import err, format_count, out
from clusterkit.cli.ui.progress import stage_lines, transfer_bar
from clusterkit.cli.ui.status import status_table
from clusterkit.units import format_bytes, format_seconds, percent, plural, significant

if TYPE_CHECKING:
    from clusterkit.commands.demo import Demonstrated
    from clusterkit.runs.status import StatusRow


def demo(
    profile: Annotated[
        str, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile to run.")
    ] = "local-demo",
    config: ConfigOption = None,
) -> None:
    """Train a small run on this machine, from submit to report.

    Four real Meta-World tasks go through every step: submit, status, sync and report.
    """
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.demo import demo as command

    settings = load(config)
    with open_ledger(settings) as ledger, live_row() as on_row:
        done = command(
            settings, ledger, profile=profile, bar=transfer_bar, on_submit=show_submitted, on_row=on_row
        )
    show_demonstrated(done)


_FILES = {"curves.png": "curves", "report.html": "report"}


@contextmanager
def live_row() -> Iterator[Callable[[StatusRow], None]]:
    """Redraws the run's line on a terminal; otherwise prints lines."""
    if err.is_terminal:
        with Live(console=err, transient=True, auto_refresh=False) as live:
            yield lambda row: live.update(status_table([row], width=err.width)[0], refresh=True)
        return
    yield stage_lines(_line, lambda row: row.state.state.active)


def _line(row: StatusRow) -> str:
    state = row.state
    parts = [state.state.value]
    if state.progress is not None:
        parts.append(f"{state.progress:.0%} of {format_count(row.run.total_steps)} steps")
    if state.steps_per_second:
        parts.append(f"{significant(state.steps_per_second)} steps/s")
    if state.eta_seconds is not None:
        parts.append(f"{format_seconds(state.eta_seconds)} left")
    if state.success is not None:
        parts.append(f"success {percent(state.success)}")
    return "  ".join(parts)


def show_demonstrated(done: Demonstrated) -> None:
    """Prints the state, the success rates, what was synced, and the paths of the curves and the report."""
    row = done.row
    lines: list[tuple[str, str, str]] = [
        ("run", row.run.run_id, ""),
        ("state", row.state.state.value, "green"),
        ("trained", f"{format_count(row.run.total_steps)} environment steps", ""),
        ("took", f"{format_seconds(done.seconds)} from submit to report", ""),
    ]
    label = "success"
    for task, rate in done.success.items():
        lines.append((label, f"{rate:>6.1%}  {task}", "bold" if task == "mean" else ""))
        label = ""
    files = sum(run.files for run in done.synced.runs)
    size = format_bytes(sum(run.bytes for run in done.synced.runs))
    lines.append(("synced", f"{plural(files, 'file')}, {size} to {done.synced.results / row.run.run_id}", ""))
    for path in done.reported.files:
        if path.name in _FILES:
            lines.append((_FILES[path.name], str(path), ""))
    for name, value, style in lines:
        out.print(Text.assemble((f"{name:<9}", "bold"), (value, style)), soft_wrap=True)
