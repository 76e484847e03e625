"""Causes of a run's state, with the lines that show them and the command to run next. Pure.

The rules of the schedulers and of `clusterkit.diagnosis` are built from these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


@dataclass(frozen=True)
class Line:
    """One line and its place."""

    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


@dataclass(frozen=True)
class Text:
    """The text of a file or of a command's output."""

    source: str
    lines: tuple[str, ...] = ()

    def last(self, pattern: str) -> tuple[int, Line] | None:
        """Returns the last line that matches the pattern, and the number of lines after it."""
        expression = re.compile(pattern)
        for behind, line in enumerate(reversed(self.lines)):
            if expression.search(line):
                return behind, Line(self.source, line.strip())
        return None

    def tail(self, count: int) -> tuple[Line, ...]:
        """Returns the last non-blank lines."""
        spoken = [line for line in self.lines if line.strip()]
        return tuple(Line(self.source, line.rstrip()) for line in spoken[-count:])


class Sure(IntEnum):
    """How certain a finding is; the most certain one is the diagnosis."""

    GENERAL = 1
    """True but unspecific, such as an exit code or a signal."""
    SEEN = 2
    """A log says so, but continues long after: the program may have recovered."""
    LIKELY = 3
    """The end of a log says so."""
    CERTAIN = 4
    """The scheduler or the job script itself says so."""


@dataclass(frozen=True)
class Cause:
    """A cause of a run's state. docs/troubleshooting.md is generated from all causes."""

    slug: str
    """Its name, for scripts."""
    means: str
    """A clause for the user that begins with "it" or names the faulty thing."""
    cure: str
    """What to do about it, in words that fit any program."""
    of_recipe: str = ""
    """What else a run of a recipe can do, by the trainer's settings."""
    trouble: bool = True
    """False if nothing is wrong with the run."""

    def found(
        self,
        *evidence: Line | None,
        command: str,
        detail: str = "",
        cure: str = "",
        sure: Sure = Sure.CERTAIN,
    ) -> Finding:
        """Returns a finding of this cause.

        Args:
            evidence: the lines that show it; None is ignored.
            command: the command to run next, or "" if there is none.
            detail: details of this run, added to the sentence.
            cure: what to do in this case, if it differs from the general cure.
            sure: its certainty.
        """
        return Finding(
            self,
            f"{self.means}: {detail}" if detail else self.means,
            tuple(dict.fromkeys(line for line in evidence if line is not None)),
            cure or self.cure,
            command,
            sure,
        )


@dataclass(frozen=True)
class Finding:
    """A cause as found in one run."""

    cause: Cause
    sentence: str
    evidence: tuple[Line, ...]
    cure: str
    next: str
    sure: Sure
