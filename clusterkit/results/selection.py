"""Selects the files of remote run directories to pull, and how each one is transferred.

Append-only files (logs, metrics, W&B logs) are extended in place by their tails, so that a reader that
follows the local copy keeps its handle; rsync verifies the existing part and resends a replaced file. All
other files are renamed into place when complete. Nothing local is ever removed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clusterkit.backends.jobs import SCHEDULER_LOG, WORK_LIST
from clusterkit.folders import PARTIAL_DIR
from clusterkit.results.listing import RemoteFile

_CHECKPOINT = re.compile(r"checkpoints/(step-\d{12})/(.+)")
_UNFINISHED = re.compile(r"checkpoints/(\.step-\d{12}-[^/]+/|replay/\.\d{12}-[0-9a-f]+\.tmp$)")
"""What the trainer is still writing, or just removing. All else in this folder may be another program's."""
_SEGMENT = re.compile(r"checkpoints/replay/\d{12}-[0-9a-f]{16}\.rows")
APPENDED = re.compile(
    rf"{re.escape(SCHEDULER_LOG)}|attempts/\d+/(log|stderr|ranks/\d+\.log)|metrics\.jsonl|(.*/)?wandb/.+\.wandb",
    re.DOTALL,
)
_LEFT_OUT = re.compile(
    rf".*\.wandb\.(synced|syncstate)|(.*/)?{re.escape(PARTIAL_DIR)}(/.*)?|{re.escape(WORK_LIST)}(\.gone)?",
    re.DOTALL,
)
"""The W&B client's marker files belong to the uploading machine; the others are clusterkit's own."""
CLEANED = "cleaned.json"
"""File in a run directory from which `clusterkit storage clean` has removed something."""


class Checkpoints(StrEnum):
    """The checkpoints to pull."""

    LAST = "last"
    """The newest one without its replay rows, and the final model: enough to evaluate and play. Of a program
    of the user's own, all that it has written into this folder."""
    ALL = "all"
    """Every complete one with their shared replay rows, so that the run can be resumed elsewhere."""
    BEST = "best"
    """As `LAST`, but the complete one saved at, or next after, the best evaluation."""
    NONE = "none"


@dataclass(frozen=True)
class FileTransfer:
    """A file to transfer: whole, under a temporary name that is renamed, unless it says otherwise."""

    file: RemoteFile
    new: int
    """New bytes."""
    checksum: bool = False
    """Whether contents are compared: rewritten within a second, it has the old size and, to rsync, time."""
    append: bool = False
    """Whether only the tail of an append-only file is sent."""


def select(
    files: Iterable[RemoteFile],
    checkpoints: Checkpoints,
    *,
    best: Mapping[str, int] | None = None,
    newest_here: Mapping[str, tuple[str, int]] | None = None,
) -> list[RemoteFile]:
    """Selects the files that should exist locally.

    Args:
        files: all files on the cluster.
        checkpoints: the checkpoints to select.
        best: run id -> step of its best evaluation; for a run without one the newest checkpoint is selected.
        newest_here: run id -> name and time of the newest local checkpoint, for runs from which
            `storage clean` removed files on the cluster.
    """
    files = list(files)
    whole: dict[str, dict[str, int]] = defaultdict(dict)
    for file in files:
        match = _CHECKPOINT.fullmatch(file.inside)
        if match and match[2] == "manifest.json":
            whole[file.run_id][match[1]] = file.mtime_ns
    chosen = {
        run_id: _best(times, (best or {})[run_id])
        if checkpoints is Checkpoints.BEST and run_id in (best or {})
        else _newest(times, (newest_here or {}).get(run_id))
        for run_id, times in whole.items()
    }

    def wanted(file: RemoteFile) -> bool:
        if _LEFT_OUT.fullmatch(file.inside):
            return False
        if not file.inside.startswith("checkpoints/"):
            return True
        if checkpoints is Checkpoints.NONE or _UNFINISHED.match(file.inside):
            return False
        match = _CHECKPOINT.fullmatch(file.inside)
        if match and match[1] in whole[file.run_id]:
            return checkpoints is Checkpoints.ALL or match[1] == chosen.get(file.run_id)
        return checkpoints is Checkpoints.ALL or not _SEGMENT.fullmatch(file.inside)

    return [file for file in files if wanted(file)]


def newest(times: Mapping[str, int]) -> str | None:
    """Returns the newest by time: a run resumed from an older checkpoint saves lower steps again."""
    return max(times, key=lambda name: (times[name], name), default=None)


def newest_checkpoints(results: Path, run_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Returns by run id the name and time (ns) of the newest local checkpoint, if there is one."""
    checkpoints = {}
    for run_id in run_ids:
        manifests = results.glob(f"{run_id}/checkpoints/step-*/manifest.json")
        times = {manifest.parent.name: os.lstat(manifest).st_mtime_ns for manifest in manifests}
        if (name := newest(times)) is not None:
            checkpoints[run_id] = (name, times[name])
    return checkpoints


def _newest(times: Mapping[str, int], here: tuple[str, int] | None) -> str | None:
    """Returns the newest checkpoint; None if the one here is newer."""
    name = newest(times)
    if name and here and here[0] != name and here[1] // 10**9 > times[name] // 10**9:
        return None
    return name


def _best(names: Collection[str], step: int) -> str:
    """Returns the first checkpoint at or after a step, or else the last before it."""
    after = [name for name in names if int(name.removeprefix("step-")) >= step]
    return min(after) if after else max(names)


def compare(files: Iterable[RemoteFile], local: Mapping[str, os.stat_result]) -> list[FileTransfer]:
    """Plans the transfer of the selected files, given the local ones (by the same relative paths)."""
    transfers = []
    for file in files:
        here = local.get(file.path)
        if here is None:
            transfers.append(FileTransfer(file, file.size))
        elif file.size > here.st_size and here.st_nlink == 1 and APPENDED.fullmatch(file.inside):
            # a file with another hard link must not be written in place
            transfers.append(FileTransfer(file, file.size - here.st_size, append=True))
        elif (file.size, file.mtime_ns // 10**9) != (here.st_size, here.st_mtime_ns // 10**9):
            transfers.append(FileTransfer(file, file.size))
        elif file.mtime_ns != here.st_mtime_ns and here.st_mtime_ns % 10**9:
            transfers.append(FileTransfer(file, file.size, checksum=True))
    return transfers
