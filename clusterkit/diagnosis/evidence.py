"""What is known about one run: what the rules look at. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterkit.backends.base import JobState
from clusterkit.diagnosis.collect import Subject
from clusterkit.runs.record import RunRecord
from clusterkit.runs.state import RunState


@dataclass(frozen=True)
class Line:
    """One line and where it stands."""

    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


@dataclass(frozen=True)
class Text:
    """What a file or a command said."""

    source: str
    lines: tuple[str, ...] = ()

    def last(self, pattern: str) -> tuple[int, Line] | None:
        """The last line the pattern is found in, with how many lines follow it."""
        expression = re.compile(pattern)
        for behind, line in enumerate(reversed(self.lines)):
            if expression.search(line):
                return behind, Line(self.source, line.strip())
        return None

    def tail(self, count: int) -> tuple[Line, ...]:
        """The last lines that are not blank."""
        spoken = [line for line in self.lines if line.strip()]
        return tuple(Line(self.source, line.rstrip()) for line in spoken[-count:])


@dataclass(frozen=True)
class Node:
    """A node of the run's partition."""

    name: str
    state: str
    by: str
    """Who set the reason."""
    reason: str

    @property
    def usable(self) -> bool:
        """Whether jobs may start there."""
        word = self.state.lower()
        return not word.endswith("*") and not re.match(r"down|drain|fail|maint|unknown|power|reboot", word)

    def line(self) -> Line:
        """As evidence."""
        reason = f", {self.reason!r} (set by {self.by})" if self.reason not in ("", "none") else ""
        return Line("sinfo", f"node {self.name} is {self.state}{reason}")


@dataclass(frozen=True)
class Space:
    """The file system of one root."""

    role: str
    """`run`, `scratch` or `home`."""
    path: str
    total: int
    free: int
    """Bytes."""

    @property
    def full(self) -> bool:
        """Less than one per cent, or 16 MiB, is free."""
        return self.free < max(self.total // 100, 16 << 20)

    def line(self) -> Line:
        """As evidence."""
        return Line("df", f"{self.path}: {self.free >> 20} MiB of {self.total >> 20} MiB free")


@dataclass(frozen=True)
class Evidence:
    """Everything the rules look at."""

    subject: Subject
    state: RunState
    record: RunRecord
    about: Mapping[str, str] = field(default_factory=dict)
    """`user` (uid and name), `home`, `host`, `now`, `scratch`, `image`, `workdir`."""
    raw_state: str = ""
    """The scheduler's own word."""
    reason: str = ""
    """Why it waits or ended, in the scheduler's words, with blanks for underscores."""
    job: Mapping[str, str] = field(default_factory=dict)
    """`scontrol show job`."""
    booked: Mapping[str, str] = field(default_factory=dict)
    """The newest start in sacct; MaxRSS is the largest of its steps."""
    partition: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    spaces: tuple[Space, ...] = ()
    texts: Mapping[str, Text] = field(default_factory=dict)
    """By name: `slurm.log`, `log`, `stderr`, `script`, `image`, `qos`, ..."""
    people: Mapping[str, str] = field(default_factory=dict)
    """User names by uid."""
    silent: str = ""
    """Why the scheduler could not be asked."""

    @property
    def waiting(self) -> bool:
        """It is in the queue."""
        return self.state.state.waiting

    @property
    def ended_badly(self) -> bool:
        """It has ended and is not complete."""
        return not self.state.state.active and self.state.state is not JobState.COMPLETED

    @property
    def exit(self) -> Mapping[str, Any]:
        """The exit record of the newest start; empty when there is none."""
        started = self.record.started
        return (started.exit if started else None) or {}

    @property
    def own_end(self) -> bool:
        """The newest start came to an end of its own: no signal, no time limit."""
        return self.exit.get("why") in ("completed", "failed", "container")

    @property
    def program_log(self) -> Text:
        """What the newest start has printed."""
        return self.texts.get("log", Text("log"))

    def search(self, pattern: str, *names: str) -> tuple[int, Line] | None:
        """The last line of the logs in which a pattern is found, with how many lines follow it.

        Args:
            pattern: a regular expression.
            names: of texts; left out: what the program and the scheduler wrote.
        """
        for name in names or ("log", "stderr", "slurm.log"):
            text = self.texts.get(name)
            if text is not None and (found := text.last(pattern)) is not None:
                return found
        return None

    def line(self, pattern: str, *names: str) -> Line | None:
        """As `search`, only the line."""
        found = self.search(pattern, *names)
        return found[1] if found else None

    def here(self, command: str) -> str:
        """A command that must run on the cluster, as a person types it."""
        return f"{self.subject.shell} {command}".strip()
