"""One offline W&B log on disk: what it holds, how far it is good, and a copy that is safe to hand over."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import WandbError
from clusterkit.wandb import framing, records
from clusterkit.wandb.framing import LogState
from clusterkit.wandb.records import RecordKind

_REPEATED = frozenset({RecordKind.HISTORY, RecordKind.OUTPUT, RecordKind.OUTPUT_RAW, RecordKind.STATS})
"""Records that the server appends: sent again, they would be there twice. All others replace or merge."""


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
    """Records up to the last of history, with it."""
    last_step: int | None
    exit_code: int | None
    """None when the log has no exit record: still written, or its writer was killed."""

    @property
    def online(self) -> bool:
        """Whether its writer had the task of uploading it, too."""
        return not self.path.parent.name.startswith("offline-")


def find_logs(run_dir: Path, *, online: bool = False) -> list[Path]:
    """The offline logs of a pulled run directory, or those of its online starts."""
    return sorted(run_dir.glob(f"wandb/{'' if online else 'offline-'}run-*/run-*.wandb"))


def inspect(path: Path) -> WandbLog:
    """Read a log once and say what it holds.

    Raises:
        WandbError: the file cannot be read.
    """
    content = _LogContent()
    try:
        with path.open("rb") as stream:
            framed = framing.scan(stream, content.see)
            stream.seek(0)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except OSError as error:
        raise WandbError(f"{path}: cannot be read: {error.strerror}") from error
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
    """What the records of one log add up to."""

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
    """Write a copy of a log that ends with the last whole record that it had when it was inspected.

    Args:
        log: the log to copy; it may have grown since.
        target: the file to write.
        skip_history: leave out this many history records from the beginning, and the console lines and
            system metrics between them, because the server has them already.
        growing: leave out the console lines and system metrics after the last history record: the next part
            begins there.
        ending: records to end with in the place of the log's own exit record.
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
        framing.scan(stream, see)
    with target.open("wb") as copy:
        framing.write(copy, [*kept, *(ending or ())])
