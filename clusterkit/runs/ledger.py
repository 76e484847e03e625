"""The ledger: an SQLite database of the runs that this project has submitted.

It is only a cache: the run directories on the clusters are authoritative.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError
from clusterkit.folders import make_ignored
from clusterkit.images.image import Image
from clusterkit.runs.ledger_faults import damaged, ledger_fault
from clusterkit.untrusted import RECORD_BYTES, number, text, whole

SHORT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}-([0-9]{1,7})(/[a-z0-9]{1,24})?")
"""Short names."""
_LARGEST = 999_999
"""Largest number of a short name from elsewhere that new ones follow."""
ALONE = -1
"""The `part` of a group's run that was submitted by itself, as the trials of a search are."""
_VERSION = 7
_BUSY_SECONDS = 10.0


class _LedgerConnection(sqlite3.Connection):
    """Also fails with an SQLite error where damage is quoted that is no text."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(f"could not decode: {error}") from None


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
    """The last known state, a JobState."""
    group: str = ""
    """Id of the sweep or pipeline that it belongs to."""
    submission: int = 0
    """Number of the newest submission."""
    until_done: str = ""
    """How it continues past its time limit: `requeue`, `array` or `chain`; empty if it does not."""
    last: str = ""
    """The last known RunState as JSON, for ended runs and clusters that do not answer."""
    part: int = 0
    """Number, within the group, of the submission that it belongs to; ALONE for one of its own."""
    short: str = ""
    """Its short name, `PROJECT-N` or in a group `PROJECT-N/OWN`; empty if it was given none."""

    def as_object(self) -> dict[str, Any]:
        """Returns the run as plain values, as `--json` of the commands prints it."""
        values = asdict(self)
        del values["last"]
        return values | {name: values[name] or None for name in _NULL_IF_EMPTY}


_NULL_IF_EMPTY = ("recipe", "job_id", "submitted", "total_steps", "group", "until_done", "short")
"""Fields that the ledger leaves empty, or 0, where there is no value."""
_COLUMNS = [f'"{field.name}"' for field in fields(LedgerRun)]
_KINDS = tuple(int if field.type == "int" else str for field in fields(LedgerRun))
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_SECRETS = re.compile(r"/(.*/)?secrets/[A-Za-z0-9][A-Za-z0-9_.-]*\.[0-9a-f]{8}", re.DOTALL)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LONGEST = 10_000
"""Characters of a value; only `last` may be longer."""
_STATES = frozenset(JobState)
_ADDED = {
    "group": "TEXT NOT NULL DEFAULT ''",
    "submission": "INTEGER NOT NULL DEFAULT 0",
    "until_done": "TEXT NOT NULL DEFAULT ''",
    "last": "TEXT NOT NULL DEFAULT ''",
    "part": "INTEGER NOT NULL DEFAULT 0",
    "place": "REAL",
    "short": "TEXT NOT NULL DEFAULT ''",
}
"""Columns missing from earlier formats. `place` orders the runs, see `Ledger.add_all`."""
_TABLES = (
    """CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL, profile TEXT NOT NULL,
        recipe TEXT NOT NULL, seed INTEGER NOT NULL, job_id TEXT NOT NULL, submitted TEXT NOT NULL,
        run_dir TEXT NOT NULL, total_steps INTEGER NOT NULL, state TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS digests (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, digest TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS images (
        cluster TEXT NOT NULL, arch TEXT NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL,
        PRIMARY KEY (cluster, arch)
    )""",
    "CREATE TABLE IF NOT EXISTS snapshots (cluster TEXT PRIMARY KEY, id TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS rates (
        cluster TEXT PRIMARY KEY, bytes_per_second REAL NOT NULL, measured TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS strangers (
        cluster TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (cluster, run_id)
    )""",
    "CREATE TABLE IF NOT EXISTS numbers (given INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS secrets (folder TEXT PRIMARY KEY, cluster TEXT NOT NULL)",
)


def _fault_of(row: Sequence[object]) -> str | None:
    """Returns what a row of the runs has that clusterkit never writes, in words; None if it is sound.

    Folders here and on clusters are named, and removed, by what is read.
    """
    run_id, state = row[0], row[10]
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        return "an id of a run is no run id"
    for column, value, kind in zip(_COLUMNS, row, _KINDS, strict=True):
        longest = RECORD_BYTES if column == '"last"' else _LONGEST
        if type(value) is not kind or (isinstance(value, str) and len(value) > longest):
            return f"{run_id} has no readable {column.strip(chr(34))}"
    if row[-1] and not SHORT.fullmatch(str(row[-1])):
        return f"{run_id} has no readable short name"
    return None if state in _STATES else f"{run_id} is in a state that does not exist"


def _refuse_links(folder: Path) -> None:
    """Raises ClusterkitError for links, through which others' files would be overwritten and removed."""
    names = [folder, *(folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ())]
    if link := next((name for name in names if name.is_symlink()), None):
        raise ClusterkitError(
            f"{link}: is a link, and clusterkit writes and removes files there",
            hint="remove the link, or put the folder that it leads to in its place",
        )


def _make_folder(folder: Path) -> None:
    try:
        make_ignored(folder)
    except OSError as error:
        raise ClusterkitError(
            f"{folder}: cannot be made: {error.strerror}", hint="use a project folder that you can write to"
        ) from error


def _copy(path: Path, memory: sqlite3.Connection) -> None:
    """Copies the file and its write-ahead log to memory; SQLite reads the log only in a writable folder."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        for each in path.parent.glob(f"{path.name}*"):
            if not each.name.endswith("-shm"):  # SQLite rebuilds it from the log
                with suppress(FileNotFoundError):  # a log is deleted when the command that wrote it ends
                    shutil.copyfile(each, Path(folder, each.name))
        with closing(sqlite3.connect(Path(folder, path.name))) as file:
            file.backup(memory)


class Ledger:
    """The project's ledger, `.clusterkit/ledger.sqlite3`. Use as a context manager.

    Args:
        path: the file, created if missing.
        copy: use a copy in memory, empty if the file is missing, and leave the file unchanged.

    Raises:
        ClusterkitError: the ledger is unusable; see `ledger_fault`.
        OSError: the file cannot be copied.
    """

    def __init__(self, path: Path, *, copy: bool = False) -> None:
        self.path = path
        self.folder = path.parent
        """The project's private folder."""
        self.lasting = not copy
        """Whether what it records is kept."""
        _refuse_links(self.folder)
        if not copy:
            _make_folder(self.folder)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise damaged("it is no file", path)  # SQLite would wait for a named pipe
        try:
            place = ":memory:" if copy else path
            self.connection = sqlite3.connect(
                place, timeout=_BUSY_SECONDS, isolation_level=None, factory=_LedgerConnection
            )
            if copy:
                _copy(path, self.connection)
            self._migrate(path)
        except sqlite3.DatabaseError as error:
            raise ledger_fault(error, path) or error from error

    @classmethod
    def for_reading(cls, path: Path) -> Ledger:
        """Opens a ledger for a command that need not record anything, as a copy if it is not writable."""
        places = [each for each in (path, path.parent, path.parent.parent) if each.exists()][:2]
        return cls(path, copy=not all(os.access(each, os.W_OK) for each in places))

    def _migrate(self, path: Path) -> None:
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:  # increase it with every new table or column
            return  # SQLite writes and syncs even an unchanged version
        if version > _VERSION:
            self.connection.close()
            raise ClusterkitError(
                f"{path}: written by a newer clusterkit (ledger {version}, this one reads {_VERSION})",
                hint="upgrade clusterkit, or move the ledger away: it is only a cache",
            )
        self._write_ahead()
        with self._transaction():
            for table in _TABLES:
                self.connection.execute(table)
            if self.connection.execute("PRAGMA table_info(deployments)").fetchone():
                self.connection.execute(
                    "INSERT INTO images SELECT cluster, '', digest, bytes FROM deployments"
                )
                self.connection.execute("DROP TABLE deployments")
            present = {row[1] for row in self.connection.execute("PRAGMA table_info(runs)")}
            for name, kind in _ADDED.items():
                if name not in present:
                    self.connection.execute(f'ALTER TABLE runs ADD COLUMN "{name}" {kind}')
            self.connection.execute(
                "UPDATE runs SET place = coalesce(strftime('%s', submitted), 0) WHERE place IS NULL"
            )
            self.connection.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of some changes, or none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.DatabaseError):  # SQLite itself has done so after some errors
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def _write_ahead(self) -> None:
        """Lets readers work beside a writer; retries, as SQLite does not wait for others that set this."""
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
        """Adds a run or replaces its row."""
        self.add_all([run])

    def add_all(self, runs: Iterable[LedgerRun], at: Mapping[str, float] | None = None) -> None:
        """Adds or replaces all of the runs or none; a known run keeps its position.

        A run that is submitted here comes after all others, whatever this machine's clock says.

        Args:
            runs: the runs.
            at: for runs that another laptop submitted, when it did, by run id: Unix seconds of this machine's
                clock.
        """
        marks = ", ".join("?" for _ in _COLUMNS)
        changes = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[1:])
        with self._transaction():
            newest = self.connection.execute("SELECT max(place) FROM runs").fetchone()[0] or 0.0
            here = max(time.time(), newest)
            self.connection.executemany(
                f"INSERT INTO runs ({', '.join(_COLUMNS)}, place) VALUES ({marks}, ?) "  # noqa: S608 - constants
                f"ON CONFLICT (run_id) DO UPDATE SET {changes}",
                [(*astuple(run), here if at is None else at[run.run_id]) for run in runs],
            )

    def get(self, run_id: str) -> LedgerRun | None:
        """Returns the run with this id; None if unknown."""
        row = self.connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE run_id = ?",  # noqa: S608 - constants
            (run_id,),
        ).fetchone()
        return self._run(row) if row else None

    def _run(self, row: Sequence[Any]) -> LedgerRun:
        if fault := _fault_of(row):
            raise damaged(fault, self.path)
        return LedgerRun(*row)

    def restore(self, runs: Iterable[LedgerRun], before: Iterable[LedgerRun | None]) -> None:
        """Restores the earlier rows of runs and removes runs that had none."""
        pairs = list(zip(runs, before, strict=True))
        self.connection.executemany(
            "DELETE FROM runs WHERE run_id = ?", [(run.run_id,) for run, old in pairs if old is None]
        )
        self.add_all(old for _, old in pairs if old is not None)

    def settle(self, run_id: str, job_id: str, state: str, last: str, token: str = "") -> None:
        """Records a submission's outcome, unless the submitting process has already done so.

        `token` must occur in the row's `last`, so that a later submission is not overwritten.
        """
        self.connection.execute(
            "UPDATE runs SET job_id = ?, state = ?, last = ? "
            "WHERE run_id = ? AND state = 'SUBMITTING' AND instr(last, ?)",
            (job_id, state, last, run_id, token),
        )

    def update(self, runs: Iterable[LedgerRun]) -> None:
        """Records new states of runs, except those that were submitted again in the meantime."""
        with self._transaction():
            self.connection.executemany(
                "UPDATE runs SET job_id = ?2, state = ?3, last = ?4, submission = ?5 "
                "WHERE run_id = ?1 AND submission <= ?5 AND state != 'SUBMITTING'",
                [(run.run_id, run.job_id, run.state, run.last, run.submission) for run in runs],
            )

    def ids(self) -> set[str]:
        """Returns all run ids."""
        return {row[0] for row in self.connection.execute("SELECT run_id FROM runs")}

    def new_number(self, taken: Iterable[str] = ()) -> int:
        """Returns the number of a new run's or group's short name, which no other had or will get here.

        Args:
            taken: short names that were given elsewhere.
        """
        with self._transaction():
            given = "SELECT max(given) FROM numbers WHERE typeof(given) = 'integer'"
            newest = self.connection.execute(given).fetchone()[0] or 0
            names = [*taken, *(row[0] for row in self.connection.execute("SELECT short FROM runs"))]
            known = (int(match[1]) for match in map(SHORT.fullmatch, names) if match)
            number = max(newest, *(one for one in known if one <= _LARGEST), 0) + 1
            self.connection.execute("DELETE FROM numbers")
            self.connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    def strangers(self, cluster: str) -> set[str]:
        """Returns the names of run directories on a cluster that are not runs of this project."""
        rows = self.connection.execute("SELECT run_id FROM strangers WHERE cluster = ?", (cluster,))
        return {row[0] for row in rows}

    def add_strangers(self, cluster: str, names: Iterable[str]) -> None:
        """Records run directories that are not runs of this project."""
        with self._transaction():
            self.connection.executemany(
                "INSERT OR IGNORE INTO strangers VALUES (?, ?)", [(cluster, name) for name in names]
            )

    def set_states(self, states: Iterable[tuple[str, str]]) -> None:
        """Records the last known states, given as (run id, state) pairs."""
        with self._transaction():
            self.connection.executemany("UPDATE runs SET state = ?2 WHERE run_id = ?1", states)

    def runs(self, *, cluster: str | None = None) -> list[LedgerRun]:
        """Returns all runs in order of submission."""
        rows = self.connection.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE ?1 IS NULL OR cluster = ?1 "  # noqa: S608
            "ORDER BY place, rowid",
            (cluster,),
        )
        return [self._run(row) for row in rows]

    def find(self, names: Iterable[str]) -> list[LedgerRun]:
        """Finds runs by the names that a user types; see `clusterkit.runs.names.find`.

        Raises:
            RunError: a name matches no run, or is ambiguous.
        """
        from clusterkit.runs import names as naming

        return naming.find(self.runs(), names)

    def find_one(self, name: str) -> LedgerRun:
        """Finds the single run that a name means.

        Raises:
            RunError: as `find`, or the name means a group.
        """
        from clusterkit.runs import names as naming

        return naming.find_one(self.runs(), name)

    def digest(self, path: Path) -> str | None:
        """Returns the recorded sha256 of a local file; None without one or if size or time has changed."""
        stat = path.stat()
        row = self.connection.execute(
            "SELECT digest FROM digests WHERE path = ? AND size = ? AND mtime_ns = ?",
            (str(path), stat.st_size, stat.st_mtime_ns),
        ).fetchone()
        return str(row[0]) if row else None

    def set_digest(self, path: Path, digest: str) -> None:
        """Records the current sha256 of a local file."""
        stat = path.stat()
        self.connection.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)",
            (str(path), stat.st_size, stat.st_mtime_ns, digest),
        )

    def deployed(self, cluster: str) -> tuple[Image, ...]:
        """Returns the images last deployed to a cluster: one, or one for each architecture."""
        rows = self.connection.execute(
            "SELECT digest, bytes, arch FROM images WHERE cluster = ? ORDER BY arch DESC", (cluster,)
        )
        found = ((text(row[0]), whole(row[1]), text(row[2]) or "") for row in rows)
        return tuple(Image(digest, size, arch) for digest, size, arch in found if digest and size is not None)

    def set_deployed(self, cluster: str, image: Image) -> None:
        """Records the image deployed to a cluster in place of another for the same architecture."""
        with self._transaction():
            self.connection.execute(
                "DELETE FROM images WHERE cluster = ? AND (arch IN ('', ?) OR ? = '')",
                (cluster, image.arch, image.arch),
            )
            self.connection.execute(
                "INSERT INTO images VALUES (?, ?, ?, ?)", (cluster, image.arch, image.digest, image.bytes)
            )

    def snapshot(self, cluster: str) -> str | None:
        """Returns the id of the snapshot that this project last sent to a cluster."""
        row = self.connection.execute("SELECT id FROM snapshots WHERE cluster = ?", (cluster,)).fetchone()
        return text(row[0]) if row else None

    def set_snapshot(self, cluster: str, identity: str) -> None:
        """Records the snapshot sent to a cluster."""
        self.connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (cluster, identity))

    def rate(self, cluster: str) -> tuple[float, str] | None:
        """Returns the bytes per second of the last upload to a cluster, and its day (UTC, ISO 8601)."""
        row = self.connection.execute(
            "SELECT bytes_per_second, measured FROM rates WHERE cluster = ?", (cluster,)
        ).fetchone()
        rate, day = (number(row[0]), text(row[1])) if row else (None, None)
        return (rate, day) if rate and rate > 0 and day and _DAY.fullmatch(day) else None

    def set_rate(self, cluster: str, bytes_per_second: float, day: str) -> None:
        """Records the speed of an upload to a cluster."""
        self.connection.execute(
            "INSERT OR REPLACE INTO rates VALUES (?, ?, ?)", (cluster, bytes_per_second, day)
        )

    def secrets(self, cluster: str) -> list[str]:
        """Returns the folders on a cluster that may hold secrets of runs; absolute paths, to be removed."""
        rows = self.connection.execute("SELECT folder FROM secrets WHERE cluster = ?", (cluster,))
        return [row[0] for row in rows if isinstance(row[0], str) and _SECRETS.fullmatch(row[0])]

    def add_secrets(self, cluster: str, folders: Iterable[str]) -> None:
        """Records folders of secrets before they are written."""
        rows = [(folder, cluster) for folder in folders]
        self.connection.executemany("INSERT OR REPLACE INTO secrets VALUES (?, ?)", rows)

    def remove_secrets(self, folders: Iterable[str]) -> None:
        """Records that folders of secrets no longer exist."""
        self.connection.executemany("DELETE FROM secrets WHERE folder = ?", [(folder,) for folder in folders])
