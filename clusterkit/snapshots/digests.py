"""Digests of files that are as they were when they were read last, so that only what changed is read again.

The rule is git's (gitformat-index, "racy git"): a digest counts as long as size, both times and inode are
the same, and is only kept of a file that had been at rest when it was read. One changed within the last
moments could change once more without any of these telling.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

_AT_REST_NS = 3_000_000_000
"""FAT keeps times to two seconds; every other file system of today to much less."""

_Stamp = tuple[int, int, int, int]


class Digests:
    """The digests of one tree's files, in a table of the ledger's database."""

    def __init__(self, database: sqlite3.Connection, part: str, root: Path) -> None:
        """Read what is known of a part of a snapshot that lies in `root`; `save` writes what was learned."""
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
        """The digest of a file, if it is as it was; `status` is what it is now."""
        key, stamp = os.fsencode(name), _stamp(status)
        known = self._known.get(key)
        if known is None or known[1] != stamp:
            return None
        self._seen[key] = known
        return known[0]

    def learn(self, name: str, status: os.stat_result, digest: str) -> None:
        """Remember a digest; `status` is from before the file was read."""
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._now - _AT_REST_NS:
            self._seen[os.fsencode(name)] = digest, _stamp(status)

    def save(self) -> None:
        """Keep what was seen, and nothing of files that are gone."""
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
