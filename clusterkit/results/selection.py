"""Decides which files of the cluster's run directories come home, and how each one moves. Pure.

Append-only files (logs, metrics, W&B logs) are continued in place by their tails, so that a reader that
follows the local copy keeps its handle; rsync checks what is already here and sends a file that was replaced
anew. Everything else appears by rename, whole or not at all. Nothing local is ever removed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.results.listing import RemoteFile

_CHECKPOINT = re.compile(r"checkpoints/(step-\d{12})/(.+)")
_UNFINISHED = re.compile(r"checkpoints/((\.[^/]*|[^/]*\.tmp|step-[^/]*)/|replay/\.[^/]*\.tmp)")
_SEGMENT = re.compile(r"checkpoints/replay/\d{12}-[0-9a-f]{16}\.rows")
APPENDED = re.compile(rf"{re.escape(SCHEDULER_LOG)}|attempts/\d+/(log|stderr)|metrics\.jsonl|wandb/.+\.wandb")
_LEFT_OUT = re.compile(r".*\.wandb\.(synced|syncstate)|(.*/)?\.clusterkit-partial(/.*)?", re.DOTALL)
"""The wandb client's marks belong to the machine that uploads; a partial folder is rsync's own."""
CLEANED = "cleaned.json"
"""Lies in a run directory from which `clusterkit clean` has removed something."""


class Checkpoints(StrEnum):
    """Which checkpoints come home."""

    LAST = "last"
    """The newest whole one without its replay rows, and the final model: enough to evaluate and to film."""
    ALL = "all"
    """Every whole one with the replay rows they share, so that a run can be resumed elsewhere."""
    BEST = "best"
    """The whole one saved at, or next after, the best evaluation, likewise."""
    NONE = "none"


@dataclass(frozen=True)
class LocalFile:
    """What is here of a file."""

    size: int
    mtime_ns: int
    shared: bool = False
    """It has another name somewhere, so that it must not be written in place."""


@dataclass(frozen=True)
class PullPlan:
    """What to move, by the way it moves."""

    whole: tuple[RemoteFile, ...]
    """New or changed: written beside and renamed."""
    same_second: tuple[RemoteFile, ...]
    """Of equal size and rewritten within one second: only their content tells (rsync compares seconds)."""
    tails: tuple[RemoteFile, ...]
    """Append-only and grown. They move last, so that an exit record never comes before the last lines."""

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All of them."""
        return (*self.whole, *self.same_second, *self.tails)

    def without(self, paths: Collection[str]) -> PullPlan:
        """The plan less some files."""
        groups = (self.whole, self.same_second, self.tails)
        return PullPlan(*(tuple(file for file in group if file.path not in paths) for group in groups))

    def new_bytes(self, local: Mapping[str, LocalFile]) -> dict[str, int]:
        """Bytes that are new of each file, by path: of a file that has grown its tail."""
        tails = {file.path: file.size - local[file.path].size for file in self.tails}
        return {file.path: file.size for file in (*self.whole, *self.same_second)} | tails


def select(
    files: Iterable[RemoteFile],
    checkpoints: Checkpoints,
    *,
    best: Mapping[str, int] | None = None,
    newest_here: Mapping[str, tuple[str, int]] | None = None,
) -> list[RemoteFile]:
    """The files that should be here.

    Args:
        files: all there are.
        checkpoints: which ones.
        best: run id -> step of its best evaluation; a run without one counts its newest checkpoint.
        newest_here: run id -> name and time of the newest checkpoint that lies here, of runs whose newer ones
            have been removed there.
    """
    files = list(files)
    whole: dict[str, dict[str, int]] = defaultdict(dict)
    for file in files:
        found = _CHECKPOINT.fullmatch(file.inside)
        if found and found[2] == "manifest.json":
            whole[file.run_id][found[1]] = file.mtime_ns
    one = {
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
        found = _CHECKPOINT.fullmatch(file.inside)
        if checkpoints is Checkpoints.NONE or (found is None and _UNFINISHED.match(file.inside)):
            return False
        if found is None:
            return checkpoints is Checkpoints.ALL or not _SEGMENT.fullmatch(file.inside)
        if checkpoints is not Checkpoints.ALL:
            return found[1] == one.get(file.run_id)
        return found[1] in whole[file.run_id]

    return [file for file in files if wanted(file)]


def _newest(times: Mapping[str, int], here: tuple[str, int] | None) -> str | None:
    """By time, not by step: a run that went on from an older checkpoint saves lower steps than there are."""
    name = max(times, key=lambda name: (times[name], name))
    if here is not None and here[0] != name and here[1] // 10**9 > times[name] // 10**9:
        return None
    return name


def _best(names: Collection[str], step: int) -> str:
    """The first at or after a step, or the last before it."""
    after = [name for name in names if int(name.removeprefix("step-")) >= step]
    return min(after) if after else max(names)


def compare(files: Iterable[RemoteFile], local: Mapping[str, LocalFile]) -> PullPlan:
    """Which of the selected files must move, given what is here (by the same relative paths)."""
    whole, same_second, tails = [], [], []
    for file in files:
        here = local.get(file.path)
        grown = here is not None and APPENDED.fullmatch(file.inside) is not None and file.size > here.size
        if here is not None and grown and not here.shared:
            tails.append(file)
        elif here is None or (file.size, file.mtime_ns // 10**9) != (here.size, here.mtime_ns // 10**9):
            whole.append(file)
        elif file.mtime_ns != here.mtime_ns and here.mtime_ns % 10**9:
            same_second.append(file)
    return PullPlan(tuple(whole), tuple(same_second), tuple(tails))
