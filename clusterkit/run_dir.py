"""A pulled run directory as Python values (docs/run-directory.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import RunError
from clusterkit.record import Attempt

_YEAR_9999 = 253_370_764_800
_LARGEST = 64 << 20
"""Bytes. What comes from a cluster is not trusted to be small."""


@dataclass(frozen=True)
class RunDirectory:
    """A run as it lies here."""

    path: Path
    document: Mapping[str, Any]
    """run.json."""
    attempts: tuple[Attempt, ...]
    stopped: Mapping[str, Any] | None = None
    """stopped.json; void once there is a later attempt."""

    @property
    def run_id(self) -> str:
        """The run id."""
        return str(self.document.get("run_id", self.path.name))

    @property
    def ended(self) -> bool:
        """Whether the newest attempt has ended and none will follow."""
        if not self.attempts:
            return False
        last = self.attempts[-1]
        if last.exit is None:
            return False
        stopped = self.stopped is not None and (moment(self.stopped, "time") or 0.0) >= (
            moment(last.exit, "ended") or 0.0
        )
        return stopped or last.cancel is not None or last.exit.get("why") != "requeue"


def read_run_dir(path: Path) -> RunDirectory:
    """Read the small files of a run directory.

    Raises:
        RunError: there is no run directory, or its run.json cannot be read.
    """
    document = read_object(path / "run.json")
    if document is None:
        raise RunError(
            f"{path}: no run lies here (run.json is missing or not readable)",
            hint="`clusterkit sync-results` brings runs home",
        )
    folders = [folder for folder in path.glob("attempts/*") if folder.name.isdecimal()]
    attempts = tuple(
        Attempt(
            number=int(folder.name),
            start=read_object(folder / "start.json"),
            exit=read_object(folder / "exit.json"),
            # That it is there is what counts.
            cancel=(read_object(folder / "cancel.json") or {})
            if (folder / "cancel.json").is_file()
            else None,
        )
        for folder in sorted(folders, key=lambda folder: int(folder.name))
    )
    return RunDirectory(path, document, attempts, read_object(path / "stopped.json"))


def newest_request(folder: Path) -> dict[str, Any]:
    """request.json of a run's newest submission that was not refused; empty when there is none."""
    folders = sorted(
        (path.parent for path in folder.glob("submissions/*/request.json") if path.parent.name.isdecimal()),
        key=lambda each: (not _refused(each), int(each.name)),
    )
    return (read_object(folders[-1] / "request.json") if folders else None) or {}


def _refused(submission: Path) -> bool:
    try:
        with (submission / "status").open("rb") as file:
            status = file.read(16).strip()
    except OSError:  # of a group it is a link to what lies on the cluster
        return False
    return status.isdigit() and int(status) != 0


def table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object in a document; empty where there is something else, for what is pulled is not trusted."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def moment(document: Mapping[str, Any], key: str) -> float | None:
    """Unix seconds in a document; None where there is no time that a calendar has."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _YEAR_9999 else None


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a small file; None when it is missing, far too large or something else."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError:
        return None
    return parse_object(data) if len(data) <= _LARGEST else None


def parse_object(data: bytes | str) -> dict[str, Any] | None:
    """A JSON object; None when it is something else."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
