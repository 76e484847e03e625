"""Decides which pulled files may be removed from the cluster, and orders the script that removes them.

The script removes a file right after its SHA-256 on the cluster matched that of the local copy. Pure, except
that it inspects local files.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.resources import shell_script
from clusterkit.results.check import replay_segments
from clusterkit.results.code_copies import NO_CODE, CodeCopy
from clusterkit.results.listing import RemoteFile
from clusterkit.results.selection import CLEANED, newest
from clusterkit.untrusted import read_object

_STAYS = re.compile(
    r"run\.json|(job|node)\.sh|(launch|rendezvous)\.py|[a-z]+\.json|metrics\.jsonl|work\.list(\.gone)?|submissions/.*|attempts/[^/]*/[^/]*\.json",
    re.DOTALL,
)
"""Small files that `status`, `why` and `resume` read."""
_LOG = re.compile(rf"{re.escape(SCHEDULER_LOG)}|attempts/\d+/(log|stderr|ranks/\d+\.log)")
_SMALL_LOG = 1 << 20
_CHECKPOINT = re.compile(r"checkpoints/(step-\d{12})/(.+)", re.DOTALL)
_MANIFEST = re.compile(r"checkpoints/step-\d{12}/manifest\.json")
_SEGMENT = re.compile(r"checkpoints/replay/([^/]+)")

MARK = f"""
cd -- "$1" || exit 1
umask 077
while IFS= read -r run && IFS= read -r mark; do
  printf '%s\\n' "$mark" >"$run/.{CLEANED}.tmp" && mv -f "$run/.{CLEANED}.tmp" "$run/{CLEANED}" || exit 1
done
"""
"""POSIX sh script that replaces marks. $1 is the folder of all runs; standard input has two lines a run, its
id and its mark."""
REMAINING = f"""
cd -- "$1" && test -e {CLEANED} || exit 0
cat {CLEANED}
for manifest in checkpoints/step-*/manifest.json; do
  test ! -e "$manifest" || printf '\\036%s' "$manifest"
done
"""
"""Prints the input of `removed_checkpoint` for run directory $1; nothing if nothing was ever removed."""


@dataclass(frozen=True)
class Removable:
    """The files of one run that may be removed."""

    run_id: str
    files: tuple[RemoteFile, ...]
    """In removal order: manifests of checkpoints first, so that no partial checkpoint counts as one."""
    newest: str | None = None
    """The newest checkpoint, if it is kept so that the run can be resumed."""
    newest_bytes: int = 0
    """Its size, including its replay rows."""
    absent_bytes: int = 0
    """Size of the files kept because the local copy is missing or differs in size."""
    submissions: int = 0
    """Number of the run's submissions."""
    code: CodeCopy = NO_CODE
    """The run's copy of the code, of which there is a snapshot."""

    @property
    def bytes(self) -> int:
        """Bytes that the removal frees."""
        return sum(file.size for file in self.files) + self.code.bytes

    @property
    def count(self) -> int:
        """Number of files that go."""
        return len(self.files) + self.code.files


def removable(run_id: str, files: Iterable[RemoteFile], results: Path, *, everything: bool) -> Removable:
    """Returns the files of an ended run that may be removed.

    Args:
        run_id: of the run.
        files: the run's files on the cluster; those of other runs are ignored.
        results: the local results folder.
        everything: whether the newest checkpoint may be removed too.
    """
    mine = [file for file in files if file.run_id == run_id]
    numbers = [int(match[1]) for file in mine if (match := re.match(r"submissions/(\d{1,9})/", file.inside))]
    large = [file for file in mine if not _stays(file)]
    here = {file.inside for file in large if _is_here(file, results)}
    folders: dict[str, list[RemoteFile]] = defaultdict(list)
    for file in large:
        if match := _CHECKPOINT.fullmatch(file.inside):
            folders[match[1]].append(file)
    manifests = {
        name: file.mtime_ns
        for name, held in folders.items()
        for file in held
        if _MANIFEST.fullmatch(file.inside)
    }
    last = None if everything else newest(manifests)
    staying = {name for name, held in folders.items() if not all(file.inside in here for file in held)}
    staying |= {last} if last else set()
    needed = _segments(results / run_id, staying)
    last_rows = _segments(results / run_id, {last}) if last else frozenset()

    def kept(file: RemoteFile, names: set[str], rows: frozenset[str] | None) -> bool:
        if match := _CHECKPOINT.fullmatch(file.inside):
            return match[1] in names
        segment = _SEGMENT.fullmatch(file.inside)
        return segment is not None and (rows is None or segment[1] in rows)

    going = [file for file in large if file.inside in here and not kept(file, staying, needed)]
    going.sort(key=_turn)
    saved = [file for file in large if last and kept(file, {last}, last_rows)]
    gone = {file.path for file in (*going, *saved)}
    return Removable(
        run_id,
        tuple(going),
        last,
        sum(file.size for file in saved),
        sum(file.size for file in large if file.path not in gone),
        max(numbers, default=-1) + 1,
    )


def _turn(file: RemoteFile) -> tuple[int, int]:
    """Sorts key: files outside checkpoints first, largest first, as the first may have to free space."""
    if not file.inside.startswith("checkpoints/"):
        return 0, -file.size
    return 1 if file.inside.endswith("/manifest.json") else 2, 0


def _stays(file: RemoteFile) -> bool:
    small_log = _LOG.fullmatch(file.inside) is not None and file.size <= _SMALL_LOG
    return small_log or _STAYS.fullmatch(file.inside) is not None


def _is_here(file: RemoteFile, results: Path) -> bool:
    """Returns whether a local regular file has the same size and its path contains no link."""
    path = results
    names = file.path.split("/")
    for name in names:
        path /= name
        try:
            info = os.lstat(path)
        except OSError:
            return False
        if name is not names[-1] and not stat.S_ISDIR(info.st_mode):
            return False
    return stat.S_ISREG(info.st_mode) and info.st_size == file.size


def _segments(run_dir: Path, names: Iterable[str]) -> frozenset[str] | None:
    """Returns the replay files that checkpoints list; None if a local manifest is unreadable."""
    manifests = [read_object(run_dir / "checkpoints" / name / "manifest.json") for name in names]
    if any(manifest is None for manifest in manifests):
        return None
    listed = (segment for manifest in manifests for segment in replay_segments(manifest or {}))
    return frozenset(str(segment.get("file")) for segment in listed)


def cleaning(run: Removable, digests: Mapping[str, str], *, by: str, time: float) -> dict[str, Any]:
    """Returns an entry of cleaned.json: who removes which files, and when.

    Args:
        run: the files to remove; those without a digest are kept.
        digests: SHA-256 by path.
        by: user and machine.
        time: Unix seconds.
    """
    files = {
        file.inside: {"bytes": file.size, "sha256": digests[file.path]}
        for file in run.files
        if file.path in digests
    }
    return {"time": int(time), "by": by, "files": files}


def remove_argv(root: str, ours: str) -> list[str]:
    """Returns argv that follows `orders` on its standard input.

    Args:
        root: the folder of all runs.
        ours: a file that now exists in the results folder.
    """
    return ["sh", "-c", shell_script("clean.sh", CLEANED=CLEANED), "sh", root, ours]


def orders(
    run: Removable, digests: Mapping[str, str], mark: str, first: int
) -> tuple[bytes, list[RemoteFile]]:
    """Returns the input of `remove_argv` for one run, and its files in the order of their numbers.

    Args:
        run: the files to remove.
        digests: SHA-256 by path; files without one are omitted.
        mark: the run's cleaned.json, one line.
        first: number of the first file.
    """
    files = [file for file in run.files if file.path in digests]
    lines = ["run", str(run.submissions), run.run_id, "mark", mark, ""]
    for number, file in enumerate(files, start=first):
        lines += [str(number), digests[file.path], file.path]
    return "".join(f"{line}\n" for line in lines).encode(), files


def removed_checkpoint(answer: str, reported: str | None) -> str | None:
    """Returns the checkpoint that a run would resume from if it had not been removed; None if none was.

    Args:
        answer: the output of `REMAINING`.
        reported: name of the newest checkpoint that the run has reported.
    """
    text, *manifests = answer.split("\x1e")
    try:
        inside = [name for entry in json.loads(text)["cleanings"] for name in entry["files"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    gone = {name.split("/")[1] for name in inside if _MANIFEST.fullmatch(name) and name not in manifests}
    if reported in gone:
        return reported
    return max(gone, default=None) if not manifests else None
