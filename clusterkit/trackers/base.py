"""What a tracker must do, and what it is given of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from clusterkit.folders import local_path


class RunStatus(StrEnum):
    """States of a run, as trackers show them."""

    RUNNING = "RUNNING"
    """Also waiting, or preempted and perhaps restarted."""
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    """Cancelled."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker should show it."""

    run_id: str
    status: RunStatus
    started: float | None
    """Unix seconds."""
    ended: float | None
    """Unix seconds; None while it runs."""
    parameters: Mapping[str, str]
    """Recipe, sweep and seed, or the command."""
    tags: Mapping[str, str]
    """`name`, `cluster`, `group`, `git_commit` and `git_branch`, as far as they exist."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One number."""

    name: str
    """Its kind and name, e.g. `train/loss`."""
    step: int
    time: float
    """Unix seconds."""
    value: float
    """May be infinite or NaN: a run that diverges shows it."""


@dataclass(frozen=True)
class TrackedRows:
    """The metrics of a run, in bounded memory."""

    size: int
    """Bytes of its logs: another size means that there are other rows."""
    points: Callable[[int | None], Iterator[MetricPoint]]
    """Yields each name and step once, by step: for a tracker that is written anew, called with None, those of
    the newest attempts; for one that can only add, called with an earlier size, those that it did not have.
    """
    grows: bool = True
    """Whether an earlier size says which those are; else such a tracker asks with 0 for all, and leaves out
    the steps that it has."""


class Tracker(ABC):
    """A store of metrics. Only one process at a time logs to it.

    Args:
        place: as `place` returns it.
        project: the project's name.
        tell: called with a line while many numbers of a run are logged.

    Raises:
        TrackerUnusableError: a package is missing, or the place cannot be reached or opened.
    """

    title: ClassVar[str]
    """Its name for the user."""
    metavar: ClassVar[str] = "FOLDER"
    help: ClassVar[str] = ""
    """What the option of a built-in tracker does."""

    def __init__(self, place: str, project: str, tell: Callable[[str], None]) -> None:
        self._place, self._project, self._tell = place, project, tell

    @classmethod
    def place(cls, text: str, folder: Path) -> str:
        """Returns where to log to, as an absolute path unless another class says otherwise.

        Args:
            text: as the user wrote it.
            folder: absolute; where relative paths start.

        Raises:
            ValueError: it is no place of this tracker.
        """
        return str(local_path(text, folder))

    @classmethod
    def folder(cls, place: str) -> Path | None:
        """Returns what is written to on this machine; None for a place elsewhere."""
        return Path(place)

    @abstractmethod
    def log(self, run: TrackedRun, rows: TrackedRows) -> bool:
        """Brings one run up to date; returns whether anything has changed.

        However often it is called, and wherever it was interrupted, each name has each step once afterwards.

        Raises:
            TrackerUnusableError: no run can be logged any more.
            TrackerError: this run cannot be logged.
            OSError: a file cannot be read or written.
        """

    def close(self) -> None:  # noqa: B027 - most trackers keep nothing open
        """Ends the use of it, also after an error."""
