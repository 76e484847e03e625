"""Reads the synced copy of a run's logs, for when its cluster does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from clusterkit.errors import ClusterkitError, RunError
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.log_source import Wanted

_CHUNK = 1 << 20


def synced_logs(
    results: Path,
    run: LedgerRun,
    wanted: Wanted,
    *,
    silence: ClusterkitError,
    say: Callable[[str], None],
) -> Iterator[bytes]:
    """Yields the wanted part of the synced copy, which cannot be followed.

    Args:
        results: the results folder.
        run: whose logs to read.
        wanted: the part of its logs.
        silence: why the cluster's logs cannot be read.
        say: called with a message about the age of the copy.

    Raises:
        ClusterkitError: `silence`, if nothing of the run was synced.
        RunError: the wanted attempt was not synced.
    """
    attempts = results.glob(f"{run.run_id}/attempts/[0-9]*")
    files = {int(path.name): path / wanted.file for path in attempts if (path / wanted.file).is_file()}
    if not files:
        raise silence
    if wanted.attempt is not None and wanted.attempt not in files:
        raise RunError(
            f"attempt {wanted.attempt} of {run.run_id} was not synced, and {silence.cause}", hint=silence.hint
        )
    chosen = [wanted.attempt] if wanted.attempt is not None else sorted(files)
    newest = datetime.fromtimestamp(max(path.stat().st_mtime for path in files.values())).astimezone()
    say(f"{silence.cause}; this is the synced copy, last written {newest:%Y-%m-%d %H:%M}")
    for number in chosen if wanted.everything else chosen[-1:]:
        if wanted.everything:
            say(f"attempt {number}")
        yield from last_lines(files[number], wanted.lines)


def last_lines(path: Path, lines: int | None) -> Iterator[bytes]:
    """Yields the last lines of a file; the whole file if `lines` is None."""
    with path.open("rb") as file:
        if lines is not None:
            file.seek(_start(path, lines))
        while data := file.read(_CHUNK):
            yield data


def _start(path: Path, lines: int) -> int:
    """Returns the offset of the last lines of a file, found by searching backwards."""
    with path.open("rb") as file:
        end = position = file.seek(0, 2)
        wanted = lines + 1  # the line break before the first of them
        while position > 0:
            begin = max(0, position - _CHUNK)
            file.seek(begin)
            data = file.read(position - begin)
            if position == end and not data.endswith(b"\n"):
                wanted -= 1
            while (line_end := data.rfind(b"\n")) >= 0:
                wanted -= 1
                if wanted == 0:
                    return begin + line_end + 1
                data = data[:line_end]
            position = begin
    return 0
