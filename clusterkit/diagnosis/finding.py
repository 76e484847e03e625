"""What a rule finds: a cause, the lines that show it, and the one command to run next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from clusterkit.diagnosis.evidence import Line


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
