"""A run as one file, small enough to go to another machine, from which it goes on there to the bit.

The rows of the replay are most of it. In a row of Meta-World half of the observation is in the row before,
much does not move, and only actions are new. So each number is stored as its exclusive or with a number of
the row before, a byte of all rows after the other, and deflated: of 176 bytes a row some 30 are left, where
deflating the rows as they are leaves 44.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer import checkpoint
from trainer.checkpoint.manifest import Manifest, Segment
from trainer.checkpoint.reading import MANIFEST
from trainer.errors import CheckpointError

_LISTS = ("pieces.json", "metrics.jsonl")
_CODED = ".coded"
_SAMPLE = 4096
"""Rows by which a number's likeness to those of the row before is judged."""
Words = npt.NDArray[np.uint32]


def pack(run_dir: Path, file: Path, after: Path | None = None) -> None:
    """Writes what a run needs to go on: its newest checkpoint, the replay of that, its metrics and pieces.

    Args:
        run_dir: the run.
        file: the zip archive to write.
        after: an archive of the same run that is at the other end already; rows that it came with are left
            out.

    Raises:
        CheckpointError: the run has no good checkpoint.
    """
    path = checkpoint.newest(run_dir, lambda _: None, replay=True)
    if path is None:
        raise CheckpointError(f"{run_dir} has no checkpoint to go on from")
    there = _segments(after) if after else set()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for one in [*sorted(path.iterdir()), *(run_dir / name for name in _LISTS)]:
            archive.write(one, one.relative_to(run_dir))
        for segment in _replay(checkpoint.verify(path)):
            if segment.file not in there:
                rows = path.parent / checkpoint.REPLAY / segment.file
                words = np.fromfile(rows, "<u4").reshape(sum(segment.end) - sum(segment.begin), -1)
                archive.writestr(f"{rows.relative_to(run_dir)}{_CODED}", coded(words))


def unpack(file: Path, run_dir: Path) -> Path:
    """Writes what is in an archive into a run's folder, beside what is there.

    Returns:
        The checkpoint, verified with its replay.

    Raises:
        CheckpointError: something of it is damaged, or rows that were left out are not here.
    """
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(_CODED):
                rows = run_dir / name.removesuffix(_CODED)
                rows.parent.mkdir(parents=True, exist_ok=True)
                rows.write_bytes(decoded(archive.read(name)).tobytes())
            else:
                archive.extract(name, run_dir)
        (manifest,) = (name for name in archive.namelist() if name.endswith(MANIFEST))
    path = (run_dir / manifest).parent
    checkpoint.verify(path, replay=True)
    return path


def coded(rows: Words) -> bytes:
    """Codes rows (rows, width) for a compressor."""
    count, width = rows.shape
    place = np.unique(np.linspace(1, max(count - 1, 1), _SAMPLE).astype(int)) % count
    same = np.mean(rows[place][:, :, None] == rows[place - 1][:, None, :], axis=0)
    # of equally good ones its own; only numbers on its left beside it, or two might wait for one another
    source = np.argmax(np.tril(same) + np.eye(width) / _SAMPLE, axis=1)
    differences = rows.copy()
    differences[1:] ^= rows[:-1, source]
    planes = np.ascontiguousarray(differences.astype("<u4").view(np.uint8).reshape(count, -1).T)
    return np.array([count, width, *source], "<u4").tobytes() + planes.tobytes()


def decoded(text: bytes) -> Words:
    """Returns the rows that were coded."""
    count, width = np.frombuffer(text, "<u4", 2)
    source = np.frombuffer(text, "<u4", width, 8)
    planes = np.frombuffer(text, np.uint8, offset=8 + 4 * int(width)).reshape(4 * int(width), count)
    rows = planes.T.copy("C").view("<u4")
    for column, left in enumerate(source):
        if left == column:
            rows[:, column] = np.bitwise_xor.accumulate(rows[:, column])
        else:
            rows[1:, column] ^= rows[:-1, left]
    return rows


def _replay(manifest: Manifest) -> tuple[Segment, ...]:
    """The segments of a checkpoint's replay."""
    return () if manifest.replay is None else manifest.replay.segments


def _segments(file: Path) -> set[str]:
    """The names of the segments that the checkpoint in an archive needs."""
    with zipfile.ZipFile(file) as archive:
        found = [archive.read(name) for name in archive.namelist() if name.endswith(MANIFEST)]
    return {segment.file for text in found for segment in _replay(Manifest.from_bytes(text))}
