"""Progress bars of transfers: bytes, rate and time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from clusterkit.transport.base import Progress as Report
from clusterkit.transport.base import ProgressCallback
from clusterkit.ui.console import err


@contextmanager
def transfer_bar(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """A bar on standard error that a transfer's reports move; nothing is drawn without a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total)

        def report(progress: Report) -> None:
            bar.update(task, completed=progress.done_bytes, total=progress.total_bytes or total)

        yield report
