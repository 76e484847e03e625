"""The ledger: the runs this project has submitted, in SQLite.

It is only a cache: the run directories on the clusters are authoritative.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from clusterkit.errors import ClusterkitError
from clusterkit.folders import make_ignored

_VERSION = 3
_BUSY_SECONDS = 10.0


@dataclass(frozen=True)
class LedgerRun:
    """One submitted run as the ledger knows it."""

    run_id: str
    cluster: str
    name: str
    profile: str
    recipe: str
    seed: int
    job_id: str
    submitted: str
    """UTC, ISO 8601."""
    run_dir: str
    """Absolute path on the cluster."""
    total_steps: int
    state: str
    """The last state seen (a JobState)."""
    group: str = ""
    """Id of the sweep or pipeline it was submitted with."""
    submission: int = 0
    """Number of its newest submission."""
    until_done: str = ""
    """How it continues past its time limit: `requeue`, `array`, `chain`; empty when it does not."""
    last: str = ""
    """The last RunState seen, as JSON, for ended runs and clusters that do not answer."""
    part: int = 0
    """Number of its submission within its group."""


_COLUMNS = [f'"{field.name}"' for field in fields(LedgerRun)]
_ADDED = {
    "group": "TEXT NOT NULL DEFAULT ''",
    "submission": "INTEGER NOT NULL DEFAULT 0",
    "until_done": "TEXT NOT NULL DEFAULT ''",
    "last": "TEXT NOT NULL DEFAULT ''",
    "part": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns missing from earlier formats."""
_TABLES = (
    """CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, profile TEXT NOT NULL,
        recipe TEXT NOT NULL, seed INTEGER NOT NULL, job_id TEXT NOT NULL, submitted TEXT NOT NULL,
        run_dir TEXT NOT NULL, total_steps INTEGER NOT NULL, state TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS digests (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, digest TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS deployments (
        cluster TEXT PRIMARY KEY, digest TEXT NOT NULL, bytes INTEGER NOT NULL
    )""",
    "CREATE TABLE IF NOT EXISTS snapshots (cluster TEXT PRIMARY KEY, id TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS rates (
        cluster TEXT PRIMARY KEY, bytes_per_second REAL NOT NULL, measured TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS strangers (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (cluster, run_id)
    )""",
)


def _make_folder(folder: Path) -> None:
    try:
        make_ignored(folder)
    except OSError as error:
        raise ClusterkitError(
            f"{folder}: cannot be made: {error.strerror}", hint="use a project folder that you can write to"
        ) from error


def _copy(path: Path, memory: sqlite3.Connection) -> None:
    """A copy of the file and its write-ahead log, which SQLite reads only where it may write."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        for each in path.parent.glob(f"{path.name}*"):
            if not each.name.endswith("-shm"):  # SQLite makes it anew out of the log
                with suppress(FileNotFoundError):  # a log goes away with the command that wrote it
                    shutil.copyfile(each, Path(folder, each.name))
        with closing(sqlite3.connect(Path(folder, path.name))) as file:
            file.backup(memory)


class Ledger:
    """The project's ledger, `.clusterkit/ledger.sqlite3`. Use as a context manager.

    Args:
        path: the file, created if missing.
        copy: leave the file unchanged and use a copy in memory, empty if there is no file.

    Raises:
        ClusterkitError: it is unusable; see `ledger_fault`.
        OSError: the file cannot be copied.
    """

    def __init__(self, path: Path, *, copy: bool = False) -> None:
        self.folder = path.parent
        """The project's private folder."""
        if not copy:
            _make_folder(self.folder)
        try:
            place = ":memory:" if copy else path
            self.connection = sqlite3.connect(place, timeout=_BUSY_SECONDS, isolation_level=None)
            if copy:
                _copy(path, self.connection)
            self._migrate(path)
        except sqlite3.DatabaseError as error:
            from clusterkit.runs.ledger_faults import ledger_fault

            raise ledger_fault(error, path) or error from error

    @classmethod
    def for_reading(cls, path: Path) -> Ledger:
        """Opens a ledger for commands that only read; falls back to a copy where nothing can be written."""
        places = [each for each in (path, path.parent, path.parent.parent) if each.exists()][:2]
        return cls(path, copy=not all(os.access(each, os.W_OK) for each in places))

    def _migrate(self, path: Path) -> None:
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:  # a new table or column needs a new number
            return  # even an unchanged version would be written anew, and waited for until it is on the disk
        if version > _VERSION:
            self.connection.close()
            raise ClusterkitError(
                f"{path}: written by a newer clusterkit (ledger {version}, this one reads {_VERSION})",
                hint="upgrade clusterkit, or move the ledger away: it is only a cache",
            )
        self._write_ahead()
        self.connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            self.connection.execute(table)
        present = {row[1] for row in self.connection.execute("PRAGMA table_info(runs)")}
        for name, kind in _ADDED.items():
            if name not in present:
                self.connection.execute(f'ALTER TABLE runs ADD COLUMN "{name}" {kind}')
        self.connection.execute(f"PRAGMA user_version = {_VERSION}")
        self.connection.execute("COMMIT")

    def _write_ahead(self) -> None:
        """Allow readers beside a writer; SQLite does not wait for another process that sets this mode."""
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def add(self, run: LedgerRun) -> None:
        """Record a run, or replace what is recorded of it."""
        self.add_all([run])

    def add_all(self, runs: Iterable[LedgerRun]) -> None:
        """Record all of these runs or none; a known one keeps its place among those of the same second."""
        marks = ", ".join("?" for _ in _COLUMNS)
        changes = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[1:])
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks}) "  # noqa: S608 - constants
            f"ON CONFLICT (run_id) DO UPDATE SET {changes}",
            [astuple(run) for run in runs],
        )
        self.connection.execute("COMMIT")

    def get(self, run_id: str) -> LedgerRun | None:
        """The run with this id; None when unknown."""
        row = self.connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE run_id = ?",  # noqa: S608 - constants
            (run_id,),
        ).fetchone()
        return LedgerRun(*row) if row else None

    def restore(self, runs: Iterable[LedgerRun], before: Iterable[LedgerRun | None]) -> None:
        """Restore earlier rows of runs; runs without one are removed."""
        pairs = list(zip(runs, before, strict=True))
        self.connection.executemany(
            "DELETE FROM runs WHERE run_id = ?", [(run.run_id,) for run, old in pairs if old is None]
        )
        self.add_all(old for _, old in pairs if old is not None)

    def settle(self, run_id: str, job_id: str, state: str, last: str, token: str = "") -> None:
        """Record a submission's outcome, unless the submitting process has done so already.

        The `token` in its `last` ensures that a later submission is not overwritten.
        """
        self.connection.execute(
            "UPDATE runs SET job_id = ?, state = ?, last = ? "
            "WHERE run_id = ? AND state = 'SUBMITTING' AND instr(last, ?)",
            (job_id, state, last, run_id, token),
        )

    def update(self, runs: Iterable[LedgerRun]) -> None:
        """Record new states of runs, except of those that were submitted again in the meantime."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "UPDATE runs SET job_id = ?2, state = ?3, last = ?4, submission = ?5 "
            "WHERE run_id = ?1 AND submission <= ?5 AND state != 'SUBMITTING'",
            [(run.run_id, run.job_id, run.state, run.last, run.submission) for run in runs],
        )
        self.connection.execute("COMMIT")

    def ids(self) -> set[str]:
        """All run ids."""
        return {row[0] for row in self.connection.execute("SELECT run_id FROM runs")}

    def strangers(self, cluster: str) -> set[str]:
        """Names of run directories on a cluster that belong to other projects."""
        rows = self.connection.execute("SELECT run_id FROM strangers WHERE cluster = ?", (cluster,))
        return {row[0] for row in rows}

    def add_strangers(self, cluster: str, names: Iterable[str]) -> None:
        """Remember run directories of other projects."""
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT OR IGNORE INTO strangers VALUES (?, ?)", [(cluster, name) for name in names]
        )
        self.connection.execute("COMMIT")

    def set_states(self, states: Iterable[tuple[str, str]]) -> None:
        """Record the last states seen, as (run id, state) pairs."""
        self.connection.execute("BEGIN")
        self.connection.executemany("UPDATE runs SET state = ?2 WHERE run_id = ?1", states)
        self.connection.execute("COMMIT")

    def runs(self, *, cluster: str | None = None) -> list[LedgerRun]:
        """All runs, oldest first; those of one second in order of submission."""
        rows = self.connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE ?1 IS NULL OR cluster = ?1 "  # noqa: S608
            "ORDER BY submitted, rowid",
            (cluster,),
        )
        return [LedgerRun(*row) for row in rows]

    def find(self, names: Iterable[str]) -> list[LedgerRun]:
        """Runs by the user's names; see `clusterkit.runs.names.find`.

        Raises:
            RunError: a name matches no run, or several.
        """
        from clusterkit.runs import names as naming

        return naming.find(self.runs(), names)

    def find_one(self, name: str) -> LedgerRun:
        """The single run that a name means.

        Raises:
            RunError: as `find`; or it is the name of a group.
        """
        from clusterkit.runs import names as naming

        return naming.find_one(self.runs(), name)

    def digest(self, path: Path) -> str | None:
        """The recorded sha256 of a local file, if its size and time are unchanged."""
        stat = path.stat()
        row = self.connection.execute(
            "SELECT digest FROM digests WHERE path = ? AND size = ? AND mtime_ns = ?",
            (str(path), stat.st_size, stat.st_mtime_ns),
        ).fetchone()
        return str(row[0]) if row else None

    def set_digest(self, path: Path, digest: str) -> None:
        """Record the current sha256 of a local file."""
        stat = path.stat()
        self.connection.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)",
            (str(path), stat.st_size, stat.st_mtime_ns, digest),
        )

    def deployment(self, cluster: str) -> tuple[str, int] | None:
        """Digest and bytes of the image last deployed to a cluster."""
        row = self.connection.execute(
            "SELECT digest, bytes FROM deployments WHERE cluster = ?", (cluster,)
        ).fetchone()
        return (str(row[0]), int(row[1])) if row else None

    def set_deployment(self, cluster: str, digest: str, size: int) -> None:
        """Record the image deployed to a cluster."""
        self.connection.execute(
            "INSERT OR REPLACE INTO deployments VALUES (?, ?, ?)", (cluster, digest, size)
        )

    def snapshot(self, cluster: str) -> str | None:
        """Id of the snapshot this project last sent to a cluster."""
        row = self.connection.execute("SELECT id FROM snapshots WHERE cluster = ?", (cluster,)).fetchone()
        return str(row[0]) if row else None

    def set_snapshot(self, cluster: str, identity: str) -> None:
        """Record the snapshot sent to a cluster."""
        self.connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (cluster, identity))

    def rate(self, cluster: str) -> tuple[float, str] | None:
        """Bytes per second of the last upload to a cluster, and its day (UTC, ISO 8601)."""
        row = self.connection.execute(
            "SELECT bytes_per_second, measured FROM rates WHERE cluster = ?", (cluster,)
        ).fetchone()
        return (float(row[0]), str(row[1])) if row else None

    def set_rate(self, cluster: str, bytes_per_second: float, day: str) -> None:
        """Record the speed of an upload to a cluster."""
        self.connection.execute(
            "INSERT OR REPLACE INTO rates VALUES (?, ?, ?)", (cluster, bytes_per_second, day)
        )
