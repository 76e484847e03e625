"""What became of uploads to W&B, and the record of them: one row per log and destination."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

_KINDS = (int, str, int, int, int, str)
_LATER_COLUMNS = {"arrived": "INTEGER NOT NULL DEFAULT 0", "told": "TEXT NOT NULL DEFAULT ''"}


@dataclass(frozen=True)
class RecordedUpload:
    """A log as it was when its upload was tried."""

    size: int
    sha256: str
    history: int
    """History records sent, counted from the log's start."""
    proven: bool
    """False from the start of an upload until its arrival is verified."""
    arrived: int = 0
    """How many of these an earlier upload is verified to have delivered."""
    told: str = ""
    """The run's outcome as told to the server; empty in rows of an older clusterkit."""

    @property
    def certain(self) -> int:
        """Leading history records that are certainly on the server."""
        return self.history if self.proven else self.arrived

    def proves(self, size: int, sha256: str) -> bool:
        """Returns whether a log in this state is verified to have arrived completely."""
        return self.proven and (self.size, self.sha256) == (size, sha256)


class SqliteUploads:
    """Uploads by destination (server, entity, project) and the log's path below results/.

    They are in table `uploads` of an open SQLite connection in autocommit mode.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        if set(_LATER_COLUMNS) <= self._columns():
            return
        connection.execute("BEGIN IMMEDIATE")  # two processes may be the first ones
        connection.execute(
            "CREATE TABLE IF NOT EXISTS uploads (destination TEXT NOT NULL, path TEXT NOT NULL, "
            "size INTEGER NOT NULL, sha256 TEXT NOT NULL, history INTEGER NOT NULL, proven INTEGER NOT NULL, "
            "PRIMARY KEY (destination, path))"
        )
        there = self._columns()
        for name, kind in _LATER_COLUMNS.items():
            if name not in there:
                connection.execute(f"ALTER TABLE uploads ADD COLUMN {name} {kind}")
        connection.execute("COMMIT")

    def _columns(self) -> set[str]:
        return {row[1] for row in self._connection.execute("PRAGMA table_info(uploads)")}

    def get(self, destination: str, path: str) -> RecordedUpload | None:
        """Returns the last recorded upload of a log to a destination."""
        row = self._connection.execute(
            "SELECT size, sha256, history, proven, arrived, told FROM uploads "
            "WHERE destination = ? AND path = ?",
            (destination, path),
        ).fetchone()
        if not row or tuple(map(type, row)) != _KINDS or min(row[0], row[2], row[4]) < 0:
            return None  # the server is asked
        return RecordedUpload(row[0], row[1], row[2], bool(row[3]), row[4], row[5])

    def put(self, destination: str, path: str, upload: RecordedUpload) -> None:
        """Records an upload, or replace what is recorded of it."""
        self._connection.execute(
            "INSERT OR REPLACE INTO uploads "
            "(destination, path, size, sha256, history, proven, arrived, told) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                destination, path, upload.size, upload.sha256, upload.history, upload.proven,
                upload.arrived, upload.told,
            ),
        )  # fmt: skip


class UploadState(StrEnum):
    """The upload state of one W&B run."""

    UPLOADED = "uploaded"
    LIVE = "live"
    """The current part of an active run has arrived."""
    WOULD_UPLOAD = "would upload"
    UP_TO_DATE = "up to date"
    RUNNING = "still running"
    NOTHING = "nothing logged"
    FAILED = "failed"


@dataclass(frozen=True)
class RunUpload:
    """The result for one W&B run."""

    run_id: str
    wandb_run_id: str | None
    state: UploadState
    logs: int = 0
    """Logs passed to the client."""
    history: int = 0
    """History records passed to the client."""
    message: str = ""
    """Why not, or what was lost; one line."""
    url: str | None = None
