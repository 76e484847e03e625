"""The project folder's side of an exchange: which files travel, and how they come home."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import ClusterkitError
from clusterkit.results.containment import LocalFiles
from clusterkit.results.listing import RemoteFile
from clusterkit.runs.materials import excluded
from clusterkit.snapshots import git
from clusterkit.snapshots.collect import (
    ALWAYS_EXCLUDED,
    IGNORE_FILE,
    Collected,
    Patterns,
    collect,
    left_out,
)
from clusterkit.snapshots.snapshot import ManifestEntry, entry_of

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_DECIDING = {"clusterkit.toml", IGNORE_FILE, ".gitignore"}
"""Names of files with rules about which files leave this machine."""
_NEVER = Patterns(ALWAYS_EXCLUDED, ignore_case=True)
"""Some file systems take `.GIT` for `.git`."""
_LARGE = "it is larger than `max_file_size`"
_LINK = "it is a link, which is not exchanged"
_CHANGED = "it was changed here in the meantime"


@dataclass(frozen=True)
class ProjectFiles:
    """The files of the project folder that a snapshot would contain."""

    root: Path
    files: Mapping[str, ManifestEntry]
    """Regular files."""
    links: Mapping[str, ManifestEntry]
    left: Mapping[str, str]
    """Path -> why it does not travel."""
    collected: Collected
    excluded: Patterns
    included: Patterns
    settings: frozenset[str]
    """The settings files in the project folder."""
    max_file_size: int
    """Bytes."""

    def admit(self, there: Iterable[RemoteFile]) -> tuple[dict[str, RemoteFile], dict[str, str]]:
        """Chooses among the files of a working copy.

        Returns:
            Those that may come home, by path, and the others, each with the reason; neither those that
            `exclude` names.
        """
        free: dict[str, RemoteFile] = {}
        left: dict[str, str] = {}
        for file in there:
            name = file.inside
            if self.excluded.match(name):
                continue
            why = self._why_not(name, file.size)
            if why is None:
                free[name] = file
            else:
                left[name] = why
        blocked = self._local(free).blocked
        free = {name: file for name, file in free.items() if name not in blocked}
        unknown = [name for name in free if name not in self.files and not self.included.match(name)]
        for name in git.ignored(self.root, unknown):
            del free[name]
            left[name] = "git ignores it"
        return free, left | blocked

    def _why_not(self, name: str, size: int) -> str | None:
        if _NEVER.match(name):
            return "its name means another file on some machines"
        if self.collected.stays(name):
            return "it looks like a secret"
        return _LARGE if size > self.max_file_size else None

    def decides(self, name: str) -> bool:
        """Whether a file decides which files leave this machine; a cluster must not choose that."""
        return name.rpartition("/")[2].lower() in _DECIDING or name in self.settings

    def place(self, name: str, staged: Path, entry: ManifestEntry) -> str | None:
        """Moves a file that has been copied into the project folder.

        Args:
            name: the file's path.
            staged: the copy, on the same file system.
            entry: what it must contain.

        Returns:
            Why it was left out; None once it is there.
        """
        try:
            if _present(staged) is None or entry_of(staged, staged.lstat()).digest != entry.digest:
                return "it changed while it was being copied"
            if why := self._blocked(name):
                return why
            target = self.root / name
            status = target.lstat() if name in self.files else None
            staged.chmod(_mode(None if status is None else status.st_mode, executable=entry.kind == "exec"))
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
        except OSError as error:
            return f"it cannot be written here: {error.strerror}"
        return None

    def remove(self, name: str) -> str | None:
        """Removes a file from the project folder; returns as `place`."""
        try:
            if why := self._blocked(name):
                return why
            (self.root / name).unlink()
        except OSError as error:
            return f"it cannot be removed here: {error.strerror}"
        return None

    def _local(self, names: Iterable[str]) -> LocalFiles:
        here = LocalFiles(str(self.root))
        here.look(RemoteFile(name, 0, 0) for name in names)
        return here

    def _blocked(self, name: str) -> str | None:
        """Why a path may not be written: a link is in the way, or it is no longer as it was hashed."""
        here = self._local([name])
        if name in here.blocked:
            return here.blocked[name]
        now = here.local.get(name)
        if now is None:
            return None if name not in self.files else _CHANGED
        before = self.files.get(name)
        return None if before == entry_of(self.root / name, now) else _CHANGED


def project_files(settings: Settings) -> ProjectFiles:
    """Hashes the files of the project folder that a snapshot would contain.

    Raises:
        ConfigError: .clusterkitignore is invalid.
        ClusterkitError: a file or folder cannot be read.
    """
    root, project = settings.project_dir, settings.project
    collected = collect(root, exclude=excluded(settings), include=project.include)
    files: dict[str, ManifestEntry] = {}
    links: dict[str, ManifestEntry] = {}
    left: dict[str, str] = {}
    for name, status in collected.files.items():
        if not name.isprintable():
            left[name] = "its name contains characters that cannot be shown"
            continue
        if status.st_size > project.max_file_size:
            left[name] = _LARGE
            continue
        try:
            entry = entry_of(root / name, status)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClusterkitError(
                f"{root / name}: cannot be read: {error.strerror}",
                hint="make it readable, or add it to `exclude` in clusterkit.toml",
            ) from error
        if entry.kind == "link":
            links[name] = entry
        else:
            files[name] = entry
    own = (path.relative_to(root).as_posix() for path in settings.files if path.is_relative_to(root))
    return ProjectFiles(
        root,
        files,
        links,
        left,
        collected,
        left_out(root, excluded(settings)),
        Patterns(project.include),
        frozenset(own),
        project.max_file_size,
    )


def changed_links(here: ProjectFiles, base: Mapping[str, ManifestEntry]) -> dict[str, str]:
    """The links of the project folder that are new or changed, each with the reason why it stays."""
    return {name: _LINK for name, entry in here.links.items() if base.get(name) != entry}


def _present(path: Path) -> os.stat_result | None:
    """A regular file's status; None for anything else."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _mode(old: int | None, *, executable: bool) -> int:
    """The mode of a file at home: as before or by the umask; executable for all its readers, or for none."""
    if old is None:
        mask = os.umask(0o077)
        os.umask(mask)
        old = 0o666 & ~mask
    mode = stat.S_IMODE(old) & 0o666
    return mode | (mode & 0o444) >> 2 if executable else mode
