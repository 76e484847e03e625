"""Shows progress: bars for transfers, and lines about a run that is waited for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import note
from clusterkit.transport.base import ProgressCallback
from clusterkit.transport.base import TransferProgress as Report
from clusterkit.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from clusterkit.runs.status import StatusRow

LINE_SECONDS = 15.0
"""Seconds between two lines about an unchanged stage."""


@contextmanager
def transfer_bar(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """Shows a transfer's progress as a bar on standard error; draws nothing without a terminal.

    Args:
        label: what is transferred.
        total: bytes; None uses the reports' own total, or shows an indeterminate bar.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from clusterkit.cli.ui.console import err

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rate]}"),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total, rate="")

        def report(progress: Report) -> None:
            whole = total or progress.total_bytes
            bar.update(task, completed=progress.done_bytes, total=whole, rate=_rate(progress, whole))

        yield report


def _rate(progress: Report, total: int | None) -> str:
    """Formats the transport's own rate: rich discards its samples whenever an estimated total changes."""
    if progress.bytes_per_second <= 0:
        return ""
    rate = f"{format_bytes(progress.bytes_per_second)}/s"
    if total is None or total <= progress.done_bytes:
        return rate
    return f"{rate}  {format_seconds((total - progress.done_bytes) / progress.bytes_per_second)} left"


def stage_lines(
    words: Callable[[StatusRow], str],
    stage: Callable[[StatusRow], object],
    *,
    seconds: float = LINE_SECONDS,
) -> Callable[[StatusRow], None]:
    """Returns a callback that prints a line about a run when its stage changes, and periodically.

    Args:
        words: returns the line for the run's status.
        stage: returns what is compared with the previous status.
        seconds: how long after the last line an unchanged stage is printed again.
    """
    last: object = None
    printed = 0.0

    def show(row: StatusRow) -> None:
        nonlocal last, printed
        if stage(row) != last or time.monotonic() - printed >= seconds:
            last, printed = stage(row), time.monotonic()
            note(words(row))

    return show
