"""Checks local files before and after a pull; `listing` has checked the remote names.

Before it, nothing may be written through links or in place of folders. After it, a run directory must be
complete, undamaged and belong to the expected run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterkit.folders import PARTIAL_DIR, is_environment
from clusterkit.results.listing import RemoteFile
from clusterkit.untrusted import can_be_shown, read_object, table

_LONGEST_LINE = 16 << 20


def problems(run_dir: Path, run_id: str) -> list[str]:
    """Returns the problems of a local run directory apart from its checkpoints, one line each."""
    return [*_run_json(run_dir / "run.json", run_id), *_metrics(run_dir / "metrics.jsonl")]


def damaged_checkpoints(run_dir: Path, new: Collection[str] = ()) -> list[str]:
    """Returns the checkpoint files that are not what their manifest says, one line each.

    Args:
        run_dir: the run directory.
        new: files that were just transferred, by path inside `run_dir`. New checkpoint files are compared
            with the SHA-256 in their manifest, older ones only by size.
    """
    return list(_checkpoints(run_dir, new))


def replay_segments(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the replay files in a checkpoint's manifest; an empty one for an entry that is malformed."""
    listed = (table(manifest.get("replay")) or {}).get("segments")
    entries = listed if isinstance(listed, list) else []
    return [entry if isinstance(entry, dict) else {} for entry in entries]


def _run_json(path: Path, run_id: str) -> Iterator[str]:
    document = read_object(path)
    if document is None:
        yield "run.json is missing or not readable"
    elif document.get("run_id") != run_id:
        yield f"run.json belongs to another run: {document.get('run_id')!r}"


def _metrics(path: Path) -> Iterator[str]:
    """Checks each line; a last line without a newline is still being written and not a problem."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                yield f"metrics.jsonl line {number} is longer than {_LONGEST_LINE >> 20} MiB"
                return
            if line.endswith(b"\n") and not _is_object(line):
                yield f"metrics.jsonl line {number} is not a JSON object"
                return


def _checkpoints(run_dir: Path, new: Collection[str]) -> Iterator[str]:
    wrong: dict[str, None] = {}  # ordered and unique: checkpoints share segments
    for manifest in sorted(run_dir.glob("checkpoints/step-*/manifest.json")):
        name = f"checkpoints/{manifest.parent.name}"
        document = read_object(manifest)
        files = document.get("files") if document else None
        if document is None or not isinstance(files, dict):
            yield f"{name}/manifest.json is not readable"
            continue
        changed = f"{name}/manifest.json" in new
        for path, facts in [
            *((f"{name}/{file}", facts) for file, facts in files.items()),
            *(
                (f"checkpoints/replay/{segment.get('file')}", segment)
                for segment in replay_segments(document)
                if segment
            ),
        ]:
            if _leaves(path):
                wrong[f"{name}/manifest.json names {ascii(path)[1:-1]}"] = None
            elif fault := _fault(run_dir, path, facts, read=changed or path in new):
                wrong[fault] = None
    yield from wrong


def _leaves(path: str) -> bool:
    """Returns whether a path is anything but a printable `checkpoints/FOLDER/FILE`."""
    names = path.split("/")
    return len(names) != 3 or not {"", ".", ".."}.isdisjoint(names) or not can_be_shown(path)


def _fault(run_dir: Path, path: str, facts: Any, *, read: bool) -> str | None:
    """Returns the problem of a file that a manifest lists, if any.

    A missing file is not a problem: segments are pulled only with all checkpoints, and a live run may have
    deleted a checkpoint while it was copied.
    """
    file = run_dir / path
    if file.is_symlink() or not file.is_file() or not isinstance(facts, dict):
        return None
    size, expected, digest = file.stat().st_size, facts.get("bytes"), facts.get("sha256")
    if size != expected:
        return f"{path} has {size} bytes instead of {expected}"
    if read and isinstance(digest, str) and sha256_of(file) != digest:
        return f"{path} is damaged: its SHA-256 does not match its manifest"
    return None


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def present(results: str, files: Iterable[RemoteFile]) -> dict[str, os.stat_result]:
    """Returns the local counterparts of remote files that are regular files, by path; looks at no folder."""
    infos = {}
    for file in files:
        try:
            info = os.lstat(f"{results}/{file.path}")  # building a Path costs more than the call
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode):
            infos[file.path] = info
    return infos


def indistinct(results: Path, paths: Iterable[str]) -> dict[str, str]:
    """Returns by path the files that would overwrite another one here, and why.

    The file system of a Mac or of Windows keeps one of names that differ only in case, or in how an accent is
    written. The first in the alphabet comes.

    Args:
        results: the results folder, whose own name shows what the file system does.
        paths: all files that will be here.
    """
    other = results.with_name(results.name.swapcase())
    if other.name == results.name or not (other.exists() and other.samefile(results)):
        return {}
    first: dict[str, str] = {}
    faults = {}
    for path in sorted(paths):
        taken = first.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
        if taken != path:
            faults[path] = f"this disk cannot tell it from {taken.partition('/')[2]}"
    return faults


def second_name(file: Path, name: Path) -> None:
    """Gives a file one more name, in place of what has it; a copy where the file system has no hard links."""
    if name.exists() and name.samefile(file):
        return
    arriving = name.parent / PARTIAL_DIR / name.name
    arriving.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    arriving.unlink(missing_ok=True)
    try:
        arriving.hardlink_to(file)
    except OSError:
        shutil.copy2(file, arriving)
    arriving.replace(name)
    with contextlib.suppress(OSError):
        arriving.parent.rmdir()


@dataclass
class LocalFiles:
    """The local counterparts of remote files in the results folder."""

    results: str
    local: dict[str, os.stat_result] = field(default_factory=dict)
    """Regular files, by path."""
    blocked: dict[str, str] = field(default_factory=dict)
    """Path -> why the file cannot be written."""
    _folders: dict[str, str | None] = field(default_factory=dict)

    def look(self, files: Iterable[RemoteFile]) -> list[RemoteFile]:
        """Inspects the local counterparts of files; returns the files that may be written."""
        free = []
        for file in files:
            why = self._folder(file.path.rpartition("/")[0]) or self._file(file.path)
            if why:
                self.blocked[file.path] = why
            else:
                free.append(file)
        return free

    def _folder(self, path: str) -> str | None:
        """Returns why nothing may be written into a folder; None if something may, or it does not exist."""
        if path not in self._folders:
            above = path.rpartition("/")[0]
            why = self._folder(above) if above else None
            self._folders[path] = why or self._unfit(path) or self._unfit(f"{path}/{PARTIAL_DIR}")
        return self._folders[path]

    def _unfit(self, path: str) -> str | None:
        info = self._lstat(path)
        if info is None:
            return None
        if stat.S_ISDIR(info.st_mode):
            if path and is_environment(f"{self.results}/{path}"):
                return f"{self.results}/{path} is a virtual environment here"
            return None
        what = (
            "a link, and clusterkit does not write through links"
            if stat.S_ISLNK(info.st_mode)
            else "no folder"
        )
        return f"{self.results}/{path} is {what}"

    def _file(self, path: str) -> str | None:
        info = self._lstat(path)
        if info is None:
            return None
        if not stat.S_ISREG(info.st_mode):
            what = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}.get(
                stat.S_IFMT(info.st_mode), "no file"
            )
            return f"{self.results}/{path} is {what} here"
        self.local[path] = info
        return None

    def too_large(self, files: Iterable[RemoteFile]) -> dict[str, str]:
        """Returns by path why a file does not fit on the disk."""
        disk = os.statvfs(self.results)
        free = disk.f_bavail * disk.f_frsize
        faults = {}
        for file in files:
            if file.size > free and file.size - self._arrived(file) > free:
                faults[file.path] = f"it has {file.size:,} bytes, and {free:,} are free here"
        return faults

    def _arrived(self, file: RemoteFile) -> int:
        """Returns bytes of a file that already occupy local disk space."""
        folder, _, name = file.path.rpartition("/")
        there = (self._lstat(file.path), self._lstat(f"{folder}/{PARTIAL_DIR}/{name}"))
        return max((info.st_size for info in there if info is not None), default=0)

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(f"{self.results}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
