r"""The manifest of a snapshot: kind, sha256, size and name of every file, and the id they give it. Pure.

Each file is one NUL-terminated record `KIND SHA256 SIZE NAME`; records are sorted by name. KIND is `file`,
`exec` (executable by its owner) or `link` (the hash is of its target). The first 16 hexadecimal digits of the
manifest's own sha256 are the snapshot's id, so `zcat manifest.gz | sha256sum` verifies it on a cluster.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sqlite3
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_LARGEST = 128 << 20
"""Bytes: a million files with long names. A manifest from an archive is not trusted to be small."""


Manifest = bytes
"""A rendered manifest."""


class ManifestEntry(NamedTuple):
    """One file."""

    kind: str
    digest: str
    """sha256, hexadecimal."""
    bytes: int


def render(entries: Mapping[str, ManifestEntry]) -> Manifest:
    """The manifest of some files, given by name."""
    records = (f"{e.kind} {e.digest} {e.bytes} {name}\0" for name, e in sorted(entries.items()))
    return "".join(records).encode("utf-8", "surrogateescape")


def parse(data: Manifest) -> dict[str, ManifestEntry]:
    """Files by name; invalid records are skipped, which only causes more to be sent."""
    entries = {}
    for record in data.decode("utf-8", "surrogateescape").split("\0"):
        kind, _, rest = record.partition(" ")
        digest, _, rest = rest.partition(" ")
        size, _, name = rest.partition(" ")
        if name and size.isdigit():
            entries[name] = ManifestEntry(kind, digest, int(size))
    return entries


def pack(data: Manifest) -> bytes:
    """The manifest as stored: gzip, reproducible byte for byte."""
    return gzip.compress(data, mtime=0)


def unpack(packed: bytes) -> Manifest:
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


def missing(
    wanted: Mapping[str, ManifestEntry], there: Mapping[str, ManifestEntry]
) -> dict[str, ManifestEntry]:
    """The wanted files whose content `there` lacks under the same name."""
    return {
        name: entry
        for name, entry in wanted.items()
        if (old := there.get(name)) is None or (old.digest, old.bytes) != (entry.digest, entry.bytes)
    }


_AT_REST_NS = 3_000_000_000
"""FAT stores times in steps of two seconds; every other current file system is much finer."""


_Stamp = tuple[int, int, int, int]


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
        self._known: dict[bytes, tuple[str, _Stamp]] = {
            name: (digest, tuple(stamp)) for name, digest, *stamp in rows
        }
        self._seen: dict[bytes, tuple[str, _Stamp]] = {}
        self._now = time.time_ns()

    def get(self, name: str, status: os.stat_result) -> str | None:
        """The digest of a file whose current `status` is unchanged; None otherwise."""
        key, stamp = os.fsencode(name), _stamp(status)
        known = self._known.get(key)
        if known is None or known[1] != stamp:
            return None
        self._seen[key] = known
        return known[0]

    def learn(self, name: str, status: os.stat_result, digest: str) -> None:
        """Remember a digest; `status` was taken before the file was read."""
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._now - _AT_REST_NS:
            self._seen[os.fsencode(name)] = digest, _stamp(status)

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


def _stamp(status: os.stat_result) -> _Stamp:
    inode = status.st_ino if status.st_ino < 1 << 63 else status.st_ino - (1 << 64)  # SQLite's are signed
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode
