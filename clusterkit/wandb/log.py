"""One offline W&B log on disk: its contents, its intact part, and safe copies of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.results.logs.find import files_below
from clusterkit.results.logs.wandb import write
from clusterkit.wandb import records
from clusterkit.wandb.records import LogState, RecordKind

_REPEATED = frozenset({RecordKind.HISTORY, RecordKind.OUTPUT, RecordKind.OUTPUT_RAW, RecordKind.STATS})
"""Records that the server appends: sending them again duplicates them. All others replace or merge."""


@dataclass(frozen=True)
class WandbLog:
    """The facts of one log; one start of the program writes one log."""

    path: Path
    size: int
    sha256: str
    state: LogState
    good_end: int
    """Offset behind the last whole record."""
    run_id: str | None
    """W&B run id; None when the run record is not there yet."""
    entity: str | None
    project: str | None
    started: float
    """Unix seconds; orders the logs of one run."""
    records: int
    """Whole records."""
    history: int
    """History records."""
    history_end: int
    """Records up to and including the last history record."""
    last_step: int | None
    exit_code: int | None
    """None without an exit record: the log is still being written, or its writer was killed."""

    @property
    def online(self) -> bool:
        """Whether its writer also uploaded it."""
        return not self.path.parent.name.startswith("offline-")


def find_logs(run_dir: Path, *, online: bool = False) -> list[Path]:
    """Returns the offline logs of a pulled run directory, or those of its online starts."""
    named = re.compile(rf"(.*/)?wandb/{'' if online else 'offline-'}run-[^/]+/run-[^/]+\.wandb")
    return sorted(run_dir / path for path in files_below(run_dir) if named.fullmatch(path))


def inspect(path: Path) -> WandbLog:
    """Reads a log once and summarise it.

    Raises:
        OSError: the file cannot be read.
    """
    content = _LogContent()
    with path.open("rb") as stream:
        framed = records.scan(stream, content.see)
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    run = content.run
    return WandbLog(
        path=path,
        size=size,
        sha256=digest,
        state=framed.state,
        good_end=framed.good_end,
        run_id=run.run_id if run else None,
        entity=run.entity if run else None,
        project=run.project if run else None,
        started=run.started if run else 0.0,
        records=framed.records,
        history=content.history,
        history_end=content.history_end,
        last_step=content.last_step,
        exit_code=content.exit_code,
    )


@dataclass
class _LogContent:
    """Accumulates the records of one log."""

    run: records.LoggedRun | None = None
    seen: int = 0
    history: int = 0
    history_end: int = 0
    last_step: int | None = None
    exit_code: int | None = None

    def see(self, record: bytes) -> None:
        self.seen += 1
        kind = records.kind_of(record)
        if kind == RecordKind.HISTORY:
            self.history += 1
            self.history_end = self.seen
            step = records.history_step(record)
            self.last_step = self.last_step if step is None else step
        elif kind == RecordKind.RUN and self.run is None:
            self.run = records.run_record(record)
        elif kind == RecordKind.EXIT:
            self.exit_code = records.exit_code(record)


def write_part(
    log: WandbLog,
    target: Path,
    *,
    skip_history: int = 0,
    growing: bool = False,
    ending: Sequence[bytes] | None = None,
) -> None:
    """Writes a copy of a log up to the last whole record it had when inspected.

    Args:
        log: the log to copy; it may have grown since.
        target: the file to write.
        skip_history: omit this many leading history records, and the console lines and system metrics between
            them, because the server has them already.
        growing: omit the console lines and system metrics after the last history record, where the next part
            starts.
        ending: final records in place of the log's own exit record.
    """
    if not (skip_history or growing or ending):
        with log.path.open("rb") as source, target.open("wb") as copy:
            left = log.good_end
            while left and (data := source.read(min(left, 1 << 20))):
                copy.write(data)
                left -= len(data)
        return
    seen = skipped = 0
    kept: list[bytes] = []

    def see(record: bytes) -> None:
        nonlocal seen, skipped
        seen += 1
        kind = records.kind_of(record)
        if seen > log.records or (kind == RecordKind.EXIT and ending):
            return
        if kind in _REPEATED and (skipped < skip_history or (growing and seen > log.history_end)):
            skipped += kind == RecordKind.HISTORY
        else:
            kept.append(record)

    with log.path.open("rb") as stream:
        records.scan(stream, see)
    with target.open("wb") as copy:
        write(copy, [*kept, *(ending or ())])
