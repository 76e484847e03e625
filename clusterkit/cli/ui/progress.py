"""Progress bars for transfers: bytes, rate and time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from clusterkit.transport.base import ProgressCallback
from clusterkit.transport.base import TransferProgress as Report
from clusterkit.units import format_bytes, format_seconds


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
        TextColumn("{task.description}"),
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
