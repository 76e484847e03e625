"""`clusterkit demo`."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import err, format_count, out, stage_lines, transfer_bar
from clusterkit.cli.ui.status import status_table
from clusterkit.errors import ConfigError, RunError
from clusterkit.project import load, open_ledger, request_of
from clusterkit.runs.program import trains
from clusterkit.units import format_bytes, format_seconds, percent, plural, significant

if TYPE_CHECKING:
    from clusterkit.commands.report import Reported
    from clusterkit.commands.sync import Synced
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.status import StatusRow
    from clusterkit.submit.request import SubmitRequest


def demo(
    profile: Annotated[
        str, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile to run.")
    ] = "local-demo",
    total_steps: options.TotalSteps = None,
    config: options.Config = None,
) -> None:
    """Train a small run on this machine, from submit to report.

    Four real Meta-World tasks go through every step: submit, status, sync and report. Training ends when the
    tasks are learnt, or after `--total-steps`.

    Examples:
      # four Meta-World tasks, a few minutes
      clusterkit demo
      # the same, ended early
      clusterkit demo --total-steps 32000

    See also: clusterkit report, index.md
    """
    settings, request = request_of(load(config), profile=profile, cluster="local", total_steps=total_steps)
    with open_ledger(settings) as ledger, live_row() as show_row:
        done = demonstrate(settings, ledger, request, show_row)
    show_demonstrated(done)


_LAST_LINES = 15


@dataclass(frozen=True)
class Demonstrated:
    """The result of the demo."""

    row: StatusRow
    success: Mapping[str, float]
    """Final success rate by task, 0..1, and `mean`."""
    synced: Synced
    reported: Reported
    seconds: float
    """Time from submission to report."""


def demonstrate(
    settings: Settings,
    ledger: Ledger,
    request: SubmitRequest,
    show_row: Callable[[StatusRow], None],
) -> Demonstrated:
    """Runs a profile on the local cluster, from submission to report.

    Args:
        settings: of the project.
        ledger: of the project.
        request: for a run of the bundled trainer.
        show_row: called every second with the run's status.

    Raises:
        ConfigError: the profile does not run the bundled trainer.
        RunError: the run did not complete; the message includes the end of its log.
    """
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.logs import logs
    from clusterkit.commands.report import report
    from clusterkit.commands.sync import SyncRequest, sync_results
    from clusterkit.report.groups import group_runs, read_runs
    from clusterkit.runs.log_source import Wanted
    from clusterkit.runs.watching import watch
    from clusterkit.submit.pipeline import resolve, submit

    start = time.monotonic()
    plan = resolve(settings, request)
    if not trains(plan.runs[0].program.argv):
        raise ConfigError(
            f"the profile {request.profile.name} runs a program of this project, and the demo shows the "
            "bundled trainer",
            hint="run the demo in another folder; `clusterkit submit` submits this project's program",
        )
    submitted = submit(settings, plan, ledger, bar=transfer_bar)
    show_submitted(submitted)
    (run,) = submitted.runs
    for watched in watch(settings, ledger, names=[run.run_id]):
        (row,) = watched.report.rows
        show_row(row)
    if row.state.state is not JobState.COMPLETED:
        tail = b"".join(
            data for _, data in logs(settings, [run], Wanted(lines=_LAST_LINES), bar=transfer_bar)
        )
        raise RunError(
            f"{run.run_id} is {row.state.state}: {row.state.why}\n{tail.decode(errors='replace').rstrip()}",
            hint=f"`clusterkit logs {run.run_id}` shows the whole log",
        )
    synced = sync_results(settings, SyncRequest(names=(run.run_id,)), ledger, bar=transfer_bar)
    folder = synced.results / run.run_id
    reported = report([folder], folder / "report", now=datetime.now(UTC))
    (group,) = group_runs(read_runs([folder]))
    finals = {task: group.final(f"success/{task}") for task in (*group.tasks, "mean")}
    success = {task: point.value for task, point in finals.items() if point}
    return Demonstrated(row, success, synced, reported, time.monotonic() - start)


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
