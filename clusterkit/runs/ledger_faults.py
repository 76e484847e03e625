"""Says what is wrong with a ledger that cannot be used, and how it is rebuilt."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from clusterkit.errors import ClusterkitError

_NAME = "the ledger, .clusterkit/ledger.sqlite3"
_IN_USE = ("another clusterkit process is using it", "try again when it is done")
_CAUSES = {
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_READONLY: ("it is read-only", "`ls -l` shows its owner and mode"),
    sqlite3.SQLITE_PERM: ("permission denied", "`ls -l` shows its owner and mode"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "`ls -ld` shows what it is, its owner and its mode"),
    sqlite3.SQLITE_FULL: ("no space left on the disk", "free some space there, then repeat the command"),
    sqlite3.SQLITE_IOERR: ("input/output error", "the disk is full, or it or its server has a fault"),
    sqlite3.SQLITE_NOMEM: ("out of memory", "close other programs, then try again"),
}
"""Result code -> cause and remedy, for errors that do not mean a damaged ledger."""
_DAMAGED = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_FORMAT,
    }
)
_OTHER_TABLES = re.compile(
    r"no such (table|column)|has no column|may not be modified|ON CONFLICT|malformed|not decode|unsupported"
    r"|has \d+ columns|unknown (tokenizer|database)|cannot modify"
)
"""Words of errors that have no code of their own: the tables are not clusterkit's, or a text is no text."""


def ledger_fault(error: sqlite3.DatabaseError, path: Path | None = None) -> ClusterkitError | None:
    """Returns the error to show for an SQLite error; None if only a bug in clusterkit can cause it."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED or (code == sqlite3.SQLITE_ERROR and _OTHER_TABLES.search(str(error))):
        return damaged(str(error), path)
    if code not in _CAUSES:
        return None
    cause, hint = _CAUSES[code]
    return ClusterkitError(f"{path or _NAME}: cannot be used: {cause}", hint=hint)


def damaged(why: str, path: Path | None = None) -> ClusterkitError:
    """Returns the error to show for a ledger whose content is damaged."""
    return ClusterkitError(
        f"{path or _NAME}: not a readable ledger: {why}",
        hint="move it away: `clusterkit status` then fills a new one from the run directories; runs and "
        "results are not lost",
    )
