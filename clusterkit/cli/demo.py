"""`clusterkit demo`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from clusterkit.cli.common import ConfigOption, TotalStepsOption, asking_for, given_words, load, open_ledger
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
    total_steps: TotalStepsOption = None,
    config: ConfigOption = None,
) -> None:
    """Train a small run on this machine, from submit to report.

    Four real Meta-World tasks go through every step: submit, status, sync and report. Training ends when the
    tasks are learnt, or after `--total-steps`.
    """
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.demo import demo as command

    settings = asking_for(load(config), [profile], time=None, total_steps=total_steps)
    with open_ledger(settings) as ledger, live_row() as on_row:
        done = command(
            settings,
            ledger,
            profile=profile,
            given=given_words(None, total_steps, None),
            bar=transfer_bar,
            on_submit=show_submitted,
            on_row=on_row,
        )
    show_demonstrated(done)


_LINE_SECONDS = 60.0
"""Seconds between two lines where there is no terminal."""
_NEXT = (
    ("clusterkit play last", "films what the run has learnt"),
    ("clusterkit init --local", "in the folder of your own program: settings for it"),
    ("clusterkit init", "settings for your cluster"),
)
_FILES = {"curves.png": "curves", "report.html": "report"}


@contextmanager
def live_row() -> Iterator[Callable[[StatusRow], None]]:
    """Redraws the run's line on a terminal; otherwise prints lines."""
    if err.is_terminal:
        with Live(console=err, transient=True, auto_refresh=False) as live:
            yield lambda row: live.update(status_table([row], width=err.width)[0], refresh=True)
        return
    yield stage_lines(_line, lambda row: row.state.state.active, seconds=_LINE_SECONDS)


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
        ("trained", f"{format_count(_steps(row))} environment steps", ""),
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
    following = [*_activation(), *_NEXT]
    width = max(len(command) for command, _ in following)
    lines += [
        ("next" if not number else "", f"{command:<{width}}  {gives}", "")
        for number, (command, gives) in enumerate(following)
    ]
    for name, value, style in lines:
        out.print(Text.assemble((f"{name:<9}", "bold"), (value, style)), soft_wrap=True)


def _activation() -> Iterator[tuple[str, str]]:
    """Yields what lets a shell find clusterkit in its virtual environment, where it does not yet."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("clusterkit") is None and script.is_file():
        here = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
        yield f". {shlex.quote(str(here))}", "lets your shell find clusterkit"


def _steps(row: StatusRow) -> int:
    """Returns the steps that were made: fewer than planned where the run had learnt enough before."""
    progress = row.state.progress
    return row.run.total_steps if progress is None else round(progress * row.run.total_steps)
