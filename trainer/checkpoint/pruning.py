"""Removes old checkpoints after a save.

A failure here never harms a run: what cannot be removed now is removed after a later save.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from trainer.checkpoint.manifest import Manifest, StoredReplay
from trainer.checkpoint.reading import folders, read_manifest
from trainer.checkpoint.segments import REPLAY, has_segments
from trainer.errors import CheckpointError
from trainer.files import sync_directory


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
        listed = {segment.file for each in stored if each is not None for segment in each.segments}
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
