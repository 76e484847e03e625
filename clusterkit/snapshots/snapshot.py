"""Takes a snapshot: collects, checks and hashes the files."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clusterkit.errors import ClusterkitError
from clusterkit.snapshots import git
from clusterkit.snapshots.collect import ALWAYS_EXCLUDED, Patterns, collect, walk
from clusterkit.snapshots.git import Git
from clusterkit.snapshots.manifest import Digests, Manifest, ManifestEntry, address, render

_CHUNK = 1 << 20


class Large(NamedTuple):
    """A file over the size limit."""

    name: str
    bytes: int


Allow = Callable[[Sequence[Large], int], bool]
"""Called with the files over a limit (bytes); returns whether to upload them."""


@dataclass(frozen=True)
class Tree:
    """The files of one folder, as hashed."""

    root: Path
    files: tuple[str, ...]
    """Relative POSIX paths, sorted."""
    stamps: tuple[tuple[int, int], ...] = ()
    """Size in bytes and modification time in nanoseconds of each file, before it was hashed."""
    manifest: Manifest = b""

    @property
    def id(self) -> str:
        """The content address, which names its folder on a cluster."""
        return address(self.manifest)

    def changed(self) -> str | None:
        """A file that changed since it was hashed, if any."""
        for name, stamp in zip(self.files, self.stamps, strict=True):
            try:
                status = (self.root / name).lstat()
            except OSError:
                return name
            if _stamp(status) != stamp:
                return name
        return None


@dataclass(frozen=True)
class Snapshot:
    """A working tree ready for upload, with its content address."""

    project: Tree
    bundle: Tree
    """The trainer package, shared by many snapshots."""
    bytes: int
    """Size of both trees."""
    git: Git = field(default_factory=Git)
    withheld: tuple[str, ...] = ()
    """Files that look like secrets and are not uploaded."""
    special: tuple[str, ...] = ()
    """Sockets, pipes and devices, which are not uploaded."""
    outside: tuple[str, ...] = ()
    """Links that point out of the tree; they are uploaded as links."""

    @property
    def id(self) -> str:
        """The working tree's content address."""
        return self.project.id

    def path(self, snapshots: str) -> str:
        """The snapshot's folder below a cluster's snapshots folder; the working tree is in its `project/`."""
        return f"{snapshots}/{self.id}"


def take(
    project_dir: Path,
    *,
    exclude: Sequence[str],
    include: Sequence[str] = (),
    max_file_size: int,
    allow: Allow | None = None,
    memory: sqlite3.Connection | None = None,
) -> Snapshot:
    """Collect the working tree and the bundled trainer and compute their content address.

    Args:
        project_dir: the folder of clusterkit.toml.
        exclude: configured patterns, matched against the relative path or any part of it.
        include: patterns of files to upload although git ignores them or they look like secrets.
        max_file_size: bytes; a larger file is uploaded only if `allow` returns true.
        allow: called once with all larger files, before any file is read; None refuses them.
        memory: a database that caches digests; None reads every file.

    Raises:
        ClusterkitError: a file is over the limit or cannot be read.
    """
    collected = collect(project_dir, exclude=exclude, include=include)
    _check_sizes(project_dir, collected.files, max_file_size, allow)
    package = _trainer_package()
    project, project_bytes = _hashed_tree("project", project_dir, collected.files, memory)
    bundle, bundle_bytes = _hashed_tree("bundle", package.parent, _package_files(package), memory)
    return Snapshot(
        project,
        bundle,
        project_bytes + bundle_bytes,
        git.stand(project_dir, stays=collected.stays),
        collected.withheld,
        collected.special,
        collected.outside,
    )


def _check_sizes(root: Path, files: Mapping[str, os.stat_result], limit: int, allow: Allow | None) -> None:
    large = [Large(name, status.st_size) for name, status in files.items() if status.st_size > limit]
    if not large or (allow is not None and allow(large, limit)):
        return
    name, size = large[0]
    more = f" (and {len(large) - 1} more)" if len(large) > 1 else ""
    raise ClusterkitError(
        f"{root / name}: {size / 2**20:.0f} MiB is over the limit of {limit / 2**20:.0f} MiB a file{more}",
        hint=f'add "/{name}" to `exclude` in clusterkit.toml, raise `max_file_size`, '
        "or let it travel this time with --send-large",
    )


def _trainer_package() -> Path:
    """The trainer's folder, located without importing it."""
    from importlib.util import find_spec

    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise ClusterkitError("the trainer package is missing from this installation of clusterkit")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def _package_files(package: Path) -> dict[str, os.stat_result]:
    names = sorted(f"{package.name}/{name}" for name in walk(package, Patterns(ALWAYS_EXCLUDED)))
    return {name: (package.parent / name).lstat() for name in names}


def _hashed_tree(
    part: str, root: Path, files: Mapping[str, os.stat_result], memory: sqlite3.Connection | None
) -> tuple[Tree, int]:
    """A hashed tree and its size in bytes."""
    digests = Digests(memory, part, root) if memory else None
    entries = {f"{part}/{name}": _entry(root, name, status, digests) for name, status in files.items()}
    if digests:
        digests.save()
    stamps = tuple(_stamp(status) for status in files.values())
    tree = Tree(root, tuple(files), stamps, render(entries))
    return tree, sum(entry.bytes for entry in entries.values())


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _entry(root: Path, name: str, status: os.stat_result, digests: Digests | None) -> ManifestEntry:
    path = root / name
    try:
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(path.readlink())
            return ManifestEntry("link", hashlib.sha256(target).hexdigest(), len(target))
        digest = digests.get(name, status) if digests else None
        if digest is None:
            digest = _sha256(path)
            if digests:
                digests.learn(name, status, digest)
    except OSError as error:
        raise ClusterkitError(
            f"{path}: cannot be read: {error.strerror}",
            hint="make it readable, or add it to `exclude` in clusterkit.toml",
        ) from error
    kind = "exec" if status.st_mode & stat.S_IXUSR else "file"
    return ManifestEntry(kind, digest, status.st_size)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
