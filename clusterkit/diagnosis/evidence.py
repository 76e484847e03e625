"""The evidence about one run, which the rules examine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterkit.backends.base import Backend, backend_of_kind
from clusterkit.backends.causes import Line, Text
from clusterkit.backends.jobs import SCHEDULER_LOG, STEP_END, JobState
from clusterkit.backends.story import JobStory, Subject
from clusterkit.config.kinds import find_kind
from clusterkit.runs.record import RunRecord
from clusterkit.runs.state import RunState


@dataclass(frozen=True)
class DiskSpace:
    """The file system of one root."""

    role: str
    """`run`, `scratch` or `home`."""
    path: str
    total: int
    free: int
    """Bytes."""

    @property
    def full(self) -> bool:
        """Whether less than one per cent, or 16 MiB, is free."""
        return self.free < max(self.total // 100, 16 << 20)

    def line(self) -> Line:
        """The file system as evidence."""
        return Line("df", f"{self.path}: {self.free >> 20} MiB of {self.total >> 20} MiB free")


@dataclass(frozen=True)
class Evidence:
    """Everything the rules examine."""

    subject: Subject
    state: RunState
    record: RunRecord
    story: JobStory
    """The scheduler's story of its job."""
    about: Mapping[str, str] = field(default_factory=dict)
    """`user` (uid and name), `home`, `host`, `now`, `scratch`, `image`, `snapshot`."""
    spaces: tuple[DiskSpace, ...] = ()
    texts: Mapping[str, Text] = field(default_factory=dict)
    """By name: `log`, `stderr`, the scheduler's log, `script`, `image`, `quota`, ..."""

    @property
    def backend(self) -> Backend:
        """The backend of its cluster."""
        return backend_of_kind(self.subject.scheduler)

    @property
    def on_this_machine(self) -> bool:
        """Whether its jobs are processes on this machine."""
        return find_kind(self.subject.scheduler).here

    @property
    def waiting(self) -> bool:
        """Whether it is in the queue."""
        return self.state.state.waiting

    @property
    def ended_badly(self) -> bool:
        """Whether it ended without completing."""
        return not self.state.state.active and self.state.state is not JobState.COMPLETED

    @property
    def exit(self) -> Mapping[str, Any]:
        """The exit record of the newest attempt; empty if there is none."""
        started = self.record.started
        return (started.exit if started else None) or {}

    @property
    def own_end(self) -> bool:
        """Whether the newest attempt ended by itself: no signal, no time limit."""
        return self.exit.get("why") in ("completed", "failed", "container")

    @property
    def program_log(self) -> Text:
        """The output of the newest attempt, without what the scheduler says of its end."""
        log = self.texts.get("log", Text("log"))
        return Text(log.source, tuple(line for line in log.lines if not STEP_END.match(line)))

    def space(self, role: str) -> DiskSpace | None:
        """The file system of a root."""
        return next((space for space in self.spaces if space.role == role), None)

    def search(self, pattern: str, *names: str) -> tuple[int, Line] | None:
        """Returns the last line of the logs that matches a pattern, and the number of lines after it.

        Args:
            pattern: a regular expression.
            names: names of texts; by default the logs of program and scheduler.
        """
        for name in names or ("log", "stderr", SCHEDULER_LOG):
            text = self.texts.get(name)
            if text is not None and (found := text.last(pattern)) is not None:
                return found
        return None

    def line(self, pattern: str, *names: str) -> Line | None:
        """Like `search`, but returns only the line."""
        found = self.search(pattern, *names)
        return found[1] if found else None
