r"""Takes a snapshot: collects, checks and hashes the files, and lists them in a manifest.

A manifest has one NUL-terminated record `KIND SHA256 SIZE NAME` per file, sorted by name. KIND is `file`,
`exec` (executable by its owner) or `link` (the hash is of its target). The first 16 hexadecimal digits of the
manifest's own sha256 are the snapshot's id, so `zcat manifest.gz | sha256sum` verifies it on a cluster.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clusterkit.errors import ClusterkitError
from clusterkit.snapshots import git
from clusterkit.snapshots.collect import ALWAYS_EXCLUDED, Patterns, collect, walk
from clusterkit.snapshots.git import Git

_LARGEST = 128 << 20
"""Bytes: a million files with long names. A manifest from an archive is not trusted to be small."""
_AT_REST_NS = 3_000_000_000
"""FAT stores times in steps of two seconds; every other current file system is much finer."""

_LARGEST_POINTER = 1024
"""Bytes, by the specification: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md"""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.+\n)*oid sha256:[0-9a-f]{64}\nsize \d+\n"
)

_FullStamp = tuple[int, int, int, int]

Manifest = bytes
"""A rendered manifest."""


class ManifestEntry(NamedTuple):
    """One file."""

    kind: str
    digest: str
    """sha256, hexadecimal."""
    bytes: int


def render_manifest(entries: Mapping[str, ManifestEntry]) -> Manifest:
    """The manifest of some files, given by name."""
    records = (f"{e.kind} {e.digest} {e.bytes} {name}\0" for name, e in sorted(entries.items()))
    return "".join(records).encode("utf-8", "surrogateescape")


def parse_manifest(data: Manifest) -> dict[str, ManifestEntry]:
    """Files by name; invalid records are skipped, which only causes more to be sent."""
    entries = {}
    for record in data.decode("utf-8", "surrogateescape").split("\0"):
        kind, _, rest = record.partition(" ")
        digest, _, rest = rest.partition(" ")
        size, _, name = rest.partition(" ")
        if name and size.isdigit():
            entries[name] = ManifestEntry(kind, digest, int(size))
    return entries


def pack_manifest(data: Manifest) -> bytes:
    """The manifest as stored: gzip, reproducible byte for byte."""
    return gzip.compress(data, mtime=0)


def unpack_manifest(packed: bytes) -> Manifest:
    """A stored manifest; empty when damaged or far too large, which only causes more to be sent."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            data = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error):
        return b""
    return data if len(data) <= _LARGEST else b""


def address(data: Manifest) -> str:
    """The id of the snapshot with this manifest."""
    return hashlib.sha256(data).hexdigest()[:16]


def missing_files(
    wanted: Mapping[str, ManifestEntry], there: Mapping[str, ManifestEntry]
) -> dict[str, ManifestEntry]:
    """The wanted files whose content `there` lacks under the same name."""
    return {
        name: entry
        for name, entry in wanted.items()
        if (old := there.get(name)) is None or (old.digest, old.bytes) != (entry.digest, entry.bytes)
    }


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
    name: str = "project"
    """Of its folder in a snapshot's: `project` or `bundle`."""

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
    bundle: Tree | None
    """The trainer package, shared by many snapshots; None for programs that do not use it."""
    bytes: int
    """Size of all trees."""
    git: Git = field(default_factory=Git)
    withheld: tuple[str, ...] = ()
    """Files that look like secrets and are not uploaded."""
    environments: tuple[str, ...] = ()
    """Virtual environments, which are not uploaded."""
    special: tuple[str, ...] = ()
    """Sockets, pipes and devices, which are not uploaded."""
    outside: tuple[str, ...] = ()
    """Links that point out of the tree; they are uploaded as links."""

    @property
    def id(self) -> str:
        """The working tree's content address."""
        return self.project.id

    @property
    def trees(self) -> tuple[Tree, ...]:
        """What is sent."""
        return (self.project, self.bundle) if self.bundle else (self.project,)

    @property
    def facts(self) -> dict[str, str | bool | None]:
        """The description in run.json."""
        return {
            "id": self.id,
            "git_commit": self.git.commit,
            "git_branch": self.git.branch,
            "dirty": self.git.dirty,
            "diff": self.git.diff,
        }

    def path(self, snapshots: str) -> str:
        """The snapshot's folder below a cluster's snapshots folder; the working tree is in its `project/`."""
        return f"{snapshots}/{self.id}"


class Digests:
    """A cache of one tree's digests, in a table of the ledger's database."""

    def __init__(self, database: sqlite3.Connection, part: str, root: Path) -> None:
        """Read the known digests of the snapshot part in `root`; `save` writes the new ones."""
        self._database, self._root = database, os.fsencode(f"{part}:{root}")
        database.execute(
            "CREATE TABLE IF NOT EXISTS files (root BLOB, name BLOB, size INTEGER, mtime_ns INTEGER, "
            "ctime_ns INTEGER, inode INTEGER, digest TEXT, PRIMARY KEY (root, name)) WITHOUT ROWID"
        )
        rows = database.execute(
            "SELECT name, digest, size, mtime_ns, ctime_ns, inode FROM files WHERE root = ?", (self._root,)
        )
        self._known: dict[bytes, tuple[str, _FullStamp]] = {
            name: (digest, tuple(stamp)) for name, digest, *stamp in rows
        }
        self._seen: dict[bytes, tuple[str, _FullStamp]] = {}
        self._now = time.time_ns()

    def get(self, name: str, status: os.stat_result) -> str | None:
        """The digest of a file whose current `status` is unchanged; None otherwise."""
        key, stamp = os.fsencode(name), _full_stamp(status)
        known = self._known.get(key)
        if known is None or known[1] != stamp:
            return None
        self._seen[key] = known
        return known[0]

    def learn(self, name: str, status: os.stat_result, digest: str) -> None:
        """Remember a digest; `status` was taken before the file was read."""
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._now - _AT_REST_NS:
            self._seen[os.fsencode(name)] = digest, _full_stamp(status)

    def save(self) -> None:
        """Store the digests of files seen this time; drop those of files that are gone."""
        if self._seen == self._known:
            return
        fresh = [
            (self._root, name, *stamp, digest)
            for name, (digest, stamp) in self._seen.items()
            if self._known.get(name) != (digest, stamp)
        ]
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(
            "DELETE FROM files WHERE root = ? AND name = ?",
            [(self._root, name) for name in self._known.keys() - self._seen.keys()],
        )
        self._database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", fresh)
        self._database.execute("COMMIT")


def _full_stamp(status: os.stat_result) -> _FullStamp:
    inode = status.st_ino if status.st_ino < 1 << 63 else status.st_ino - (1 << 64)  # SQLite's are signed
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode


def take(
    project_dir: Path,
    *,
    exclude: Sequence[str],
    include: Sequence[str] = (),
    max_file_size: int,
    trainer: bool = True,
    allow: Allow | None = None,
    look: Callable[[Path, Sequence[str]], None] | None = None,
    memory: sqlite3.Connection | None = None,
) -> Snapshot:
    """Collect the working tree and the bundled trainer and compute their content addresses.

    Args:
        project_dir: the folder of clusterkit.toml.
        exclude: configured patterns, matched against the relative path or any part of it.
        include: patterns of files to upload although git ignores them or they look like secrets, and of
            virtual environments.
        max_file_size: bytes; a larger file is uploaded only if `allow` returns true.
        trainer: whether a program uses the bundled trainer, which is left out otherwise.
        allow: called once with all larger files, before any file is read; None refuses them.
        look: called with the folder and the names of all files before anything is kept of them; it raises to
            refuse them.
        memory: a database that caches digests; None reads every file.

    Raises:
        ClusterkitError: a file is over the limit, cannot be read or is a Git LFS pointer, a submodule is not
            checked out, or git failed.
    """
    collected = collect(project_dir, exclude=exclude, include=include)
    _check_sizes(project_dir, collected.files, max_file_size, allow)
    if look is not None:
        try:
            look(project_dir, tuple(collected.files))
        except OSError as error:
            raise _unreadable(error.filename, error) from error
    bundle, bundle_bytes = None, 0
    project, project_bytes = _hashed_tree("project", project_dir, collected.files, memory)
    if trainer:
        package = _trainer_package()
        bundle, bundle_bytes = _hashed_tree("bundle", package.parent, _package_files(package), memory)
    return Snapshot(
        project,
        bundle,
        project_bytes + bundle_bytes,
        git.stand(project_dir, stays=collected.stays),
        collected.withheld,
        collected.environments,
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
        "or upload it this time with --send-large",
    )


def _trainer_package() -> Path:
    """The trainer's folder beside clusterkit's: a project may have another package of that name."""
    package = Path(__file__).resolve().parents[2] / "trainer"
    if not (package / "__init__.py").is_file():
        raise ClusterkitError("the trainer package is missing from this installation of clusterkit")
    return package


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
    tree = Tree(root, tuple(files), stamps, render_manifest(entries), part)
    return tree, sum(entry.bytes for entry in entries.values())


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _entry(root: Path, name: str, status: os.stat_result, digests: Digests | None) -> ManifestEntry:
    known = digests.get(name, status) if digests else None
    try:
        entry = entry_of(root / name, status, known)
        if known is None and entry.kind != "link" and status.st_size <= _LARGEST_POINTER:
            _refuse_pointer(root, name)
    except OSError as error:
        raise _unreadable(root / name, error) from error
    if digests and known is None and entry.kind != "link":
        digests.learn(name, status, entry.digest)
    return entry


def _unreadable(path: object, error: OSError) -> ClusterkitError:
    return ClusterkitError(
        f"{path}: cannot be read: {error.strerror}",
        hint="make it readable, or add it to `exclude` in clusterkit.toml",
    )


def _refuse_pointer(root: Path, name: str) -> None:
    """Refuses what Git LFS leaves in place of a file that it has not downloaded."""
    if _POINTER.fullmatch((root / name).read_bytes()):
        raise ClusterkitError(
            f"{root / name}: only its Git LFS pointer is here, without the content",
            hint=f'`git lfs pull` downloads it; or add "/{name}" to `exclude` in clusterkit.toml',
        )


def entry_of(path: Path, status: os.stat_result, digest: str | None = None) -> ManifestEntry:
    """The manifest entry of a file, which is read unless its digest is known.

    Args:
        path: the file or link.
        status: of the path, taken before the file is read.
        digest: the file's sha256, if known.

    Raises:
        OSError: it cannot be read.
    """
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(path.readlink())
        return ManifestEntry("link", hashlib.sha256(target).hexdigest(), len(target))
    kind = "exec" if status.st_mode & stat.S_IXUSR else "file"
    return ManifestEntry(kind, digest or _sha256(path), status.st_size)


def _sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
