"""Why a run is as it is: a cause, the lines that show it, and the one command to run next. Pure.

What rules are made of, those of a scheduler as well as those of `clusterkit.diagnosis`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


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


class Sure(IntEnum):
    """How sure a finding is; the surest one is the diagnosis."""

    GENERAL = 1
    """True, and less than another rule could say: an exit code, a signal."""
    SEEN = 2
    """A log says so, but it went on for long after that: a program may have coped with it."""
    LIKELY = 3
    """The last words of a log say so."""
    CERTAIN = 4
    """The scheduler or the job script says so itself."""


@dataclass(frozen=True)
class Cause:
    """Why a run is as it is. docs/troubleshooting.md is made from them all."""

    slug: str
    """Its name, for scripts."""
    means: str
    """One clause for a person, which begins with "it" or names the thing at fault."""
    cure: str
    """What to do about it."""
    trouble: bool = True
    """False for a run with which nothing is wrong."""

    def found(
        self,
        *evidence: Line | None,
        command: str,
        detail: str = "",
        cure: str = "",
        sure: Sure = Sure.CERTAIN,
    ) -> Finding:
        """This cause, found in these lines.

        Args:
            evidence: the lines that show it; None is passed over.
            command: the one command to run next, or "" when there is nothing to do.
            detail: what is special about this run, added to the sentence.
            cure: what to do in this case, where that is not the same for all.
            sure: how sure it is.
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
    """One cause, as it shows in one run."""

    cause: Cause
    sentence: str
    evidence: tuple[Line, ...]
    cure: str
    next: str
    sure: Sure
