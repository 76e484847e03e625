"""What has been uploaded to W&B: one row for each log and destination."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Upload:
    """A log as it was when its upload was tried."""

    size: int
    sha256: str
    history: int
    """History records handed over, counted from the log's beginning."""
    proven: bool
    """False from the moment an upload starts until its arrival is proved."""


class UploadLedger(Protocol):
    """Remembers uploads by destination (server, entity, project) and the log's path below results/."""

    def get(self, destination: str, path: str) -> Upload | None:
        """The last recorded upload of a log to a destination."""
        ...

    def put(self, destination: str, path: str, upload: Upload) -> None:
        """Record an upload, or replace what is recorded of it."""
        ...


class SqliteUploads:
    """An UploadLedger in table `uploads` of an open SQLite connection in autocommit mode."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(
            "CREATE TABLE IF NOT EXISTS uploads (destination TEXT NOT NULL, path TEXT NOT NULL, "
            "size INTEGER NOT NULL, sha256 TEXT NOT NULL, history INTEGER NOT NULL, proven INTEGER NOT NULL, "
            "PRIMARY KEY (destination, path))"
        )

    def get(self, destination: str, path: str) -> Upload | None:
        """The last recorded upload of a log to a destination."""
        row = self._connection.execute(
            "SELECT size, sha256, history, proven FROM uploads WHERE destination = ? AND path = ?",
            (destination, path),
        ).fetchone()
        return Upload(row[0], row[1], row[2], bool(row[3])) if row else None

    def put(self, destination: str, path: str, upload: Upload) -> None:
        """Record an upload, or replace what is recorded of it."""
        self._connection.execute(
            "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?)",
            (destination, path, upload.size, upload.sha256, upload.history, upload.proven),
        )
