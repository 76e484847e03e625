"""The checkpoints of one run: saving what is new, and dropping what no kept checkpoint needs.

A failure to remove an old one never harms a run: what cannot be removed now is removed after a later save.
"""

from __future__ import annotations

import contextlib
import operator
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from trainer.checkpoint import reading
from trainer.checkpoint.manifest import File, Manifest, StoredReplay
from trainer.checkpoint.reading import folders, read_manifest
from trainer.checkpoint.segments import REPLAY, ReplaySegments, has_segments, write_segment
from trainer.errors import CheckpointError
from trainer.files import HashedFile, publish_directory, sync_directory
from trainer.replay import ReplayRows


@dataclass(frozen=True)
class Saved:
    """A checkpoint that has been written.

    Attributes:
        path: its directory.
        nbytes: bytes written; the replay's rows that were on disk already are not among them.
        seconds: time it took.
    """

    path: Path
    nbytes: int
    seconds: float


class CheckpointStore:
    """Saves and restores the checkpoints of a run, and remembers which rows of the replay are on disk.

    A crash at any moment leaves the checkpoints before it as they were: a checkpoint appears by the rename
    of its folder, after all it lists is on disk, and what it lists never changes.

    Args:
        run_dir: the run.
        run_id: noted in each manifest.
        recipe: noted in each manifest.
        keep: how many good checkpoints stay.
    """

    def __init__(self, run_dir: Path, *, run_id: str, recipe: str, keep: int) -> None:
        self._run_dir = run_dir
        self._home = reading.directory(run_dir)
        self._rows = self._home / REPLAY
        self._run_id = run_id
        self._recipe = recipe
        self._keep = keep
        self._last: Path | None = None
        self._on_disk: StoredReplay | None = None
        self._refused: set[Path] = set()

    def save(self, step: int, parts: Mapping[str, Any], replay: ReplaySegments | None) -> Saved:
        """Writes a checkpoint, then drops the oldest.

        Args:
            step: environment steps so far.
            parts: name to what `torch.save` can write and `torch.load(weights_only=True)` read.
            replay: its rows since the last save go to one new segment, its state becomes a part.

        Raises:
            OSError: no space, no permission; the checkpoints there are untouched then, and the next save
                writes what this one could not.
        """
        begun = time.perf_counter()
        final = self._home / reading.folder_name(step)
        if self._is_there(final):
            return Saved(final, 0, time.perf_counter() - begun)
        for folder in (self._home, self._rows):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clear(self._home, self._on_disk)
        nbytes = self._write(final, step, parts, replay)
        prune(self._home, self._keep, self._refused)
        clear(self._home, self._on_disk)
        return Saved(final, nbytes, time.perf_counter() - begun)

    @property
    def mark(self) -> tuple[int, ...] | None:
        """Of each lane, the row from which on the next save needs the replay's rows; None if it needs all."""
        held = self._on_disk
        return held.mark if held is not None and has_segments(self._rows, held.segments) else None

    def newest(self, refused: Callable[[str], None]) -> Path | None:
        """Returns the checkpoint to resume from: the last one that is good with all of its replay, or None.

        Args:
            refused: called with the reason for each one that cannot be used and is newer or of unknown age.
        """
        newest = reading.newest(self._run_dir, refused, replay=True, loads=True)
        last = 0 if newest is None else reading.serial(newest)
        self._refused = {path for path in reading.folders(self._home) if reading.serial(path) > last}
        return newest

    def load(self, path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Reads the parts of a checkpoint to resume from; `restore_replay` reads the rows of its replay.

        Raises:
            CheckpointError: it is damaged, or holds more than data.
        """
        parts = reading.load(path, device)
        self._last = self._home / path.name if self._is_ours(path) else None
        return parts

    def restore_replay(self, path: Path, replay: ReplaySegments) -> None:
        """Restores a replay of the same layout; later saves continue after its last segment.

        Raises:
            CheckpointError: the checkpoint holds no replay, or a file of it is missing or damaged.
        """
        stored, state, segments = reading.load_replay(path)
        self._on_disk = None
        replay.load_state_dict(state)
        for rows in segments:
            replay.put(rows)
        self._on_disk = stored  # if it is another run's, its files are not here and the next save writes all

    def read_replay(self, path: Path) -> tuple[dict[str, Any], Iterator[ReplayRows]]:
        """Returns state and segments, for a replay of another layout; the next save writes all of its rows.

        Raises:
            CheckpointError: as `restore_replay`; of a segment at its turn.
        """
        _, state, segments = reading.load_replay(path)
        self._on_disk = None
        return state, segments

    def _write(self, final: Path, step: int, parts: Mapping[str, Any], replay: ReplaySegments | None) -> int:
        """Writes the checkpoint and renames it into place; returns the bytes written."""
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=self._home))
        undo = contextlib.ExitStack()
        try:
            stored, nbytes = self._write_rows(step, replay, undo) if replay is not None else (None, 0)
            if replay is not None:
                parts = {**parts, REPLAY: replay.state_dict()}
            files = {f"{name}.pt": _write_part(temporary, name, content) for name, content in parts.items()}
            serial = 1 + max(map(reading.serial, reading.folders(self._home)), default=0)
            manifest = Manifest(step, serial, time.time(), self._run_id, self._recipe, files, stored)
            with HashedFile(temporary / reading.MANIFEST) as file:
                file.write(manifest.to_bytes())
            if final.exists():  # damaged, or of a branch that the run has left: it is not the one to resume
                undo.callback(hide(final).rename, final)
            publish_directory(temporary, final)
        except BaseException:
            if temporary.exists():  # else the checkpoint is there, and lists the segment
                shutil.rmtree(temporary, ignore_errors=True)
                undo.close()
            raise
        self._last, self._on_disk = final, stored
        self._refused.discard(final)
        return nbytes + file.nbytes + sum(entry.bytes for entry in files.values())

    def _write_rows(
        self, step: int, replay: ReplaySegments, undo: contextlib.ExitStack
    ) -> tuple[StoredReplay, int]:
        """Writes the rows that are not on disk; returns where all of them are, and the bytes written."""
        held = self._on_disk if self.mark is not None else None
        mark = tuple(map(int, replay.position()))
        oldest = replay.oldest()
        segments = held.segments if held else ()
        needed = [segment for segment in segments if any(map(operator.gt, segment.end, oldest))]
        rows = replay.rows_since(held.mark if held else None)
        if rows.nbytes == 0:
            return StoredReplay(mark, tuple(needed)), 0
        segment, new = write_segment(self._rows, step, rows)
        if new:
            undo.callback((self._rows / segment.file).unlink, missing_ok=True)
        return StoredReplay(mark, (*needed, segment)), segment.bytes

    def _is_there(self, final: Path) -> bool:
        """Tells whether exactly this state is on disk already, as the checkpoint to resume from."""
        if self._last not in (None, final) or not final.exists():
            return False
        return reading.newest(self._run_dir, lambda _: None, replay=True) == final

    def _is_ours(self, path: Path) -> bool:
        return path.resolve().parent == self._home.resolve()


def _write_part(folder: Path, name: str, content: Any) -> File:
    with HashedFile(folder / f"{name}.pt") as file:
        try:
            torch.save(content, cast("IO[bytes]", file))
        except RuntimeError:
            if file.fault is not None:  # PyTorch trips over its own clean-up after a failed write
                raise file.fault from None
            raise
    return File(file.nbytes, file.sha256)


def prune(home: Path, keep: int, refused: Collection[Path]) -> None:
    """Removes all but the newest good checkpoints, and damaged ones older than those.

    Args:
        home: the folder of checkpoints.
        keep: how many good ones stay.
        refused: known to be damaged. Of the others, those with all files in the right sizes are good.
    """
    held: dict[Path, Manifest] = {}
    torn: list[Path] = []
    for path in folders(home):
        try:
            held[path] = read_manifest(path)
        except CheckpointError:
            torn.append(path)
    good = [path for path in held if path not in refused and _is_whole(path, held[path])]
    kept = sorted(good, key=lambda path: held[path].serial)[-keep:]
    if not kept:
        return
    first = held[kept[0]].serial
    surplus = [path for path in held if path not in kept and (path in good or held[path].serial < first)]
    surplus += [path for path in torn if path < min(kept)]  # its age is not known, but its step is
    with contextlib.suppress(OSError):
        for path in surplus:
            hide(path)
        if surplus:
            sync_directory(home)


def clear(home: Path, in_use: StoredReplay | None) -> None:
    """Removes hidden folders, temporary files, and the segments that no checkpoint lists.

    While any manifest is unreadable no segment is removed: that manifest may list it.

    Args:
        home: the folder of checkpoints.
        in_use: the segments that the next checkpoint will list.
    """
    rows = home / REPLAY
    for hidden in home.glob(".step-*"):
        shutil.rmtree(hidden, ignore_errors=True)
    rubbish = list(rows.glob(".*.tmp"))
    try:
        stored = [in_use, *(read_manifest(path).replay for path in folders(home))]
    except CheckpointError:
        pass
    else:
        listed = {segment.file for replay in stored if replay is not None for segment in replay.segments}
        rubbish += [file for file in rows.glob("*.rows") if file.name not in listed]
    for file in rubbish:
        with contextlib.suppress(OSError):
            file.unlink()


def hide(path: Path) -> Path:
    """Atomically renames a checkpoint so that it no longer counts; returns its new path, for `clear`."""
    hidden = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    path.rename(hidden)
    return hidden


def _is_whole(path: Path, manifest: Manifest) -> bool:
    """Tells whether all files are there in their sizes; cheap, for it reads none of them."""
    try:
        there = all((path / name).stat().st_size == file.bytes for name, file in manifest.files.items())
    except OSError:
        return False
    return there and (manifest.replay is None or has_segments(path.parent / REPLAY, manifest.replay.segments))
