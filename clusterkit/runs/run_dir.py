"""Reads a pulled run directory into Python values (docs/run-directory.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.backends.submission import Submission
from clusterkit.errors import RunError
from clusterkit.runs.record import Attempt, read_record
from clusterkit.untrusted import RECORD_BYTES, number, ordinal, read_limited, read_object

_YEAR_9999 = 253_370_764_800


@dataclass(frozen=True)
class RunDirectory:
    """A pulled run."""

    path: Path
    document: Mapping[str, Any]
    """run.json."""
    attempts: tuple[Attempt, ...]
    stopped: Mapping[str, Any] | None = None
    """stopped.json; ignored once there is a later attempt."""

    @property
    def run_id(self) -> str:
        """The run id."""
        return str(self.document.get("run_id", self.path.name))

    @property
    def ended(self) -> bool:
        """Whether the newest attempt has ended and none follows it."""
        if not self.attempts:
            return False
        last = self.attempts[-1]
        if last.exit is None:
            return False
        stopped = self.stopped is not None and (moment(self.stopped, "time") or 0.0) >= (
            moment(last.exit, "ended") or 0.0
        )
        return stopped or last.cancel is not None or last.exit.get("why") != "requeue"

    def state(self, newest: str) -> str:
        """Returns the state of its job: as the job has recorded its own end, or else the newest known one."""
        if not self.ended:
            return newest
        last = self.attempts[-1]
        if (last.exit or {}).get("why") == "completed":
            return JobState.COMPLETED
        return JobState.FAILED if last.cancel is None else JobState.CANCELLED


def read_run_dir(path: Path) -> RunDirectory:
    """Reads the small files of a run directory.

    Raises:
        RunError: the run directory does not exist, or its run.json cannot be read.
    """
    document = read_object(path / "run.json")
    if document is None:
        raise RunError(
            f"{path}: this is not a run directory (run.json is missing or not readable)",
            hint="`clusterkit sync-results` brings runs home",
        )
    attempts = tuple(
        Attempt(
            number=number,
            start=_record(folder / "start.json"),
            exit=_record(folder / "exit.json"),
            # An unreadable cancel.json counts too: its existence is the request.
            cancel=(_record(folder / "cancel.json") or {}) if (folder / "cancel.json").is_file() else None,
        )
        for number, folder in _numbered(path / "attempts")
    )
    return RunDirectory(path, document, attempts, _record(path / "stopped.json"))


def newest_request(folder: Path) -> Submission:
    """Returns a run's newest submission that was not refused; one without values if there is none."""
    numbered = _numbered(folder / "submissions")
    there = [(number, path) for number, path in numbered if (path / "request.json").exists()]
    taken = [(number, path) for number, path in there if not _refused(path)]
    if not there:
        return Submission(0)
    number, path = (taken or there)[-1]
    request, wrong = read_record("request.json", read_limited(path / "request.json", RECORD_BYTES) or b"")
    return Submission.recorded(number, request, damage=wrong or "")


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """Returns the subfolders that are named by a number, in order, with their numbers."""
    named = ((ordinal(path.name), path) for path in folder.glob("*"))
    return sorted((each, path) for each, path in named if each is not None)


def _refused(submission: Path) -> bool:
    status = read_limited(submission / "status", 16)  # a group's is a link to a file on the cluster
    return bool(status and ordinal(status.decode("ascii", "replace").strip()))


def table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns an object in a document; empty for any other value, because pulled files are not trusted."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def moment(document: Mapping[str, Any], key: str) -> float | None:
    """Returns a time in a document as Unix seconds; None if invalid."""
    value = number(document.get(key))
    return value if value is not None and 0 <= value < _YEAR_9999 else None


def _record(path: Path) -> dict[str, Any] | None:
    """Reads the object in a small file, with every known value of the right type; None if there is none."""
    data = read_limited(path, RECORD_BYTES)
    return None if data is None else read_record(path.name, data)[0]
