"""Segments: the rows added to a replay between two checkpoints, in files that never change.

A file holds nothing but float32 numbers, little-endian, row after row, lane after lane; the manifest says
which rows they are. Its name holds the step and part of its sha256, so that two branches of a run (one
resumed from an older checkpoint) never give one name to two contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainer.checkpoint.manifest import Segment
from trainer.errors import CheckpointError
from trainer.files import HashedFile, sync_directory
from trainer.replay import ReplayRows

REPLAY = "replay"
"""Name of the folder of segments, and of the part with the replay's state."""


class ReplaySegments(Protocol):
    """The interface of a replay to the checkpoint store; rows are numbered from 0 and never renumbered."""

    def position(self) -> Sequence[int]:
        """Of each lane, the row that is being filled: all rows before it are final."""

    def oldest(self) -> Sequence[int]:
        """Of each lane, the oldest row that a restored replay needs."""

    def rows_since(self, mark: Sequence[int] | None) -> ReplayRows:
        """The rows from the mark on, or all; none is older than `oldest`."""

    def put(self, rows: ReplayRows) -> None:
        """Takes back the rows of a segment."""

    def state_dict(self) -> dict[str, Any]:
        """Everything but the rows."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back the state; the segments follow."""


def write_segment(folder: Path, step: int, rows: ReplayRows) -> tuple[Segment, bool]:
    """Writes rows to a file that appears by rename, on disk when this returns.

    Returns:
        The segment, and whether it is new: a crashed attempt may have left the very same.

    Raises:
        OSError: no space or no permission; nothing is left behind then.
    """
    written = temporary = folder / f".{step:012d}-{secrets.token_hex(4)}.tmp"
    try:
        with HashedFile(temporary) as file:
            file.write(np.ascontiguousarray(rows.data, dtype="<f4").data)
        final = folder / f"{step:012d}-{file.sha256[:16]}.rows"
        new = not final.exists()
        temporary.rename(final)
        written = final if new else temporary
        sync_directory(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            written.unlink()
        raise
    lanes = tuple(map(int, rows.begin)), tuple(map(int, rows.end))
    return Segment(final.name, file.nbytes, file.sha256, *lanes), new


def read_segment(folder: Path, segment: Segment) -> ReplayRows:
    """Reads a segment back.

    Raises:
        CheckpointError: it is missing, truncated or damaged.
    """
    try:
        data = np.fromfile(folder / segment.file, "<f4")
    except OSError as error:
        raise CheckpointError(
            f"replay rows cannot be read: {folder / segment.file}: {error.strerror}",
            hint="to resume a checkpoint elsewhere, bring the folder of replay rows beside it along",
        ) from error
    count = sum(segment.end) - sum(segment.begin)
    digest = hashlib.sha256(data.data).hexdigest()
    if data.nbytes != segment.bytes or digest != segment.sha256 or count == 0 or data.size % count:
        raise CheckpointError(f"{folder / segment.file} is damaged (its content is not what was written)")
    return ReplayRows(
        list(segment.begin), list(segment.end), data.reshape(count, -1).astype(np.float32, copy=False)
    )


def has_segments(folder: Path, segments: Sequence[Segment]) -> bool:
    """Tells whether files of the right sizes are there; what is in them is not looked at."""
    try:
        return all((folder / segment.file).stat().st_size == segment.bytes for segment in segments)
    except OSError:
        return False
