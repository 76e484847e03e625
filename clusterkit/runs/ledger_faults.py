"""Translates SQLite's errors into errors about the ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from clusterkit.errors import ClusterkitError

_IN_USE = ("another clusterkit is busy with it", "try again when it is done")
_CAUSES = {
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_READONLY: ("it is read-only", "`ls -l` shows its owner and mode"),
    sqlite3.SQLITE_PERM: ("permission denied", "`ls -l` shows its owner and mode"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "`ls -ld` shows what it is, its owner and its mode"),
    sqlite3.SQLITE_FULL: ("no space left on the disk", "free some room there, then repeat the command"),
    sqlite3.SQLITE_IOERR: ("input/output error", "the disk is full, or it or its server has a fault"),
    sqlite3.SQLITE_NOMEM: ("out of memory", "end other programs, then try again"),
}
"""Result code -> cause and remedy, for errors that do not mean a damaged ledger."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def ledger_fault(error: sqlite3.DatabaseError, path: Path | None = None) -> ClusterkitError | None:
    """Returns the error to show for an SQLite error; None if only a bug in clusterkit can cause it."""
    name = path or "the ledger, .clusterkit/ledger.sqlite3"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED:
        return ClusterkitError(
            f"{name}: not a readable ledger: {error}",
            hint="move it away; runs and results are not lost, the ledger is only a cache",
        )
    if code not in _CAUSES:
        return None
    cause, hint = _CAUSES[code]
    return ClusterkitError(f"{name}: cannot be used: {cause}", hint=hint)
