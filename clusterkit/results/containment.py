"""Keeps transfers inside the results folder: nothing is written through links or in place of folders.

`listing` has checked the remote names; this module checks the local files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from clusterkit.folders import PARTIAL_DIR, is_environment
from clusterkit.results.listing import RemoteFile


def present(results: str, files: Iterable[RemoteFile]) -> dict[str, os.stat_result]:
    """The local counterparts of remote files that are regular files, by path; looks at no folder."""
    found = {}
    for file in files:
        try:
            info = os.lstat(f"{results}/{file.path}")  # building a Path costs more than the call
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode):
            found[file.path] = info
    return found


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
        """Inspect the local counterparts of files; returns the files that may be written."""
        free = []
        for file in files:
            why = self._folder(file.path.rpartition("/")[0]) or self._file(file.path)
            if why:
                self.blocked[file.path] = why
            else:
                free.append(file)
        return free

    def _folder(self, path: str) -> str | None:
        """Why nothing may be written into a folder; None if writing is safe or the folder does not exist."""
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
        """Path -> why the file does not fit on the disk."""
        disk = os.statvfs(self.results)
        free = disk.f_bavail * disk.f_frsize
        found = {}
        for file in files:
            if file.size > free and file.size - self._arrived(file) > free:
                found[file.path] = f"it has {file.size:,} bytes, and {free:,} are free here"
        return found

    def _arrived(self, file: RemoteFile) -> int:
        """Bytes of a file that already occupy local disk space."""
        folder, _, name = file.path.rpartition("/")
        there = (self._lstat(file.path), self._lstat(f"{folder}/{PARTIAL_DIR}/{name}"))
        return max((info.st_size for info in there if info is not None), default=0)

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(f"{self.results}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
