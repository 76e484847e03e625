"""The table of runs, and below it what has come home of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from clusterkit.cli.ui.results import show_synced
from clusterkit.cli.ui.text import format_bytes
from clusterkit.cli.ui.watch import show_watch

if TYPE_CHECKING:
    from clusterkit.commands.sync import Synced
    from clusterkit.commands.sync_watch import SyncLook
    from clusterkit.runs.watching import Watched


def show_sync_watch(looks: Iterator[SyncLook]) -> Synced:
    """Shows looks until they end; the last and all that has come stay on the screen, also after Ctrl-C."""
    seen: list[SyncLook] = []

    def watched() -> Iterator[Watched]:
        for look in looks:
            seen[:] = [look]
            yield look.watched

    try:
        show_watch(watched(), expand=False, as_json=False, foot=lambda: _foot(seen[-1]))
    finally:
        if seen:
            show_synced(seen[-1].synced)
    return seen[-1].synced


def _foot(look: SyncLook) -> str:
    total = sum(run.bytes for run in look.synced.runs)
    here = f"{format_bytes(total)} brought home"
    if not look.news:
        return f"{here}; nothing new at the last look"
    files = sum(run.files for run in look.news)
    size = format_bytes(sum(run.bytes for run in look.news))
    return f"{here}; {size} in {files} {'file' if files == 1 else 'files'} at the last look"
