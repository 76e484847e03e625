"""A check, what it said, and the sheet on which nothing is guessed after what it needs has failed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Place(StrEnum):
    """Where a check looks, in the order of the way from the laptop to the program."""

    LAPTOP = "laptop"
    LOGIN = "login"
    STORAGE = "storage"
    SCHEDULER = "scheduler"
    NODE = "node"
    CONTAINER = "container"


class Outcome(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    """A run starts and comes home all the same."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Something else must be mended first, or there is nothing to look at; the evidence says which."""


@dataclass(frozen=True)
class Check:
    """One question. docs/doctor.md lists them all; a test compares the two."""

    name: str
    place: Place
    looks_at: str
    needs: tuple[str, ...] = ()
    """Names of checks without which its answer would mean nothing."""
    of_profile: bool = False
    """Asked once for each profile."""


@dataclass(frozen=True)
class Verdict:
    """What a check said."""

    outcome: Outcome
    evidence: str
    """One line."""
    cure: str = ""
    """One command or one setting."""


def passed(evidence: str) -> Verdict:
    """It is as a run needs it."""
    return Verdict(Outcome.PASS, evidence)


def warned(evidence: str, cure: str) -> Verdict:
    """A run works, but something about it will be worse than it need be."""
    return Verdict(Outcome.WARN, evidence, cure)


def failed(evidence: str, cure: str) -> Verdict:
    """No run would work."""
    return Verdict(Outcome.FAIL, evidence, cure)


def skipped(because: str) -> Verdict:
    """It was not asked."""
    return Verdict(Outcome.SKIPPED, because)


@dataclass(frozen=True)
class Result:
    """A check's verdict in one place."""

    check: Check
    verdict: Verdict
    profile: str = ""
    """Empty for a check that is not about one."""
    fixed: str = ""
    """What `--fix` did about it before it was judged."""


@dataclass
class Sheet:
    """The results so far."""

    cluster: str = ""
    """Its name in the settings; empty where these could not be read."""
    results: list[Result] = field(default_factory=list)
    fixes: dict[str, str] = field(default_factory=dict)
    """What was done, by the name of the check it was done for."""

    def add(self, check: Check, judge: Callable[[], Verdict], profile: str = "") -> Result:
        """Make a check and note its verdict; where what it needs has failed it is skipped, not made."""
        because = self.because(check, profile)
        verdict = skipped(because) if because else judge()
        result = Result(check, verdict, profile, self.fixes.get(check.name, ""))
        self.results.append(result)
        return result

    def because(self, check: Check, profile: str = "") -> str:
        """Why a check cannot be made; empty when it can."""
        for result in self._of(profile):
            if result.check.name not in check.needs:
                continue
            if result.verdict.outcome is Outcome.FAIL:
                return f"{result.check.name} failed"
            if result.verdict.outcome is Outcome.SKIPPED:
                return result.verdict.evidence
        return ""

    def failed(self, name: str) -> bool:
        """Whether a check of that name has failed, for any profile."""
        return any(
            result.check.name == name and result.verdict.outcome is Outcome.FAIL for result in self.results
        )

    @property
    def works(self) -> bool:
        """Whether nothing has failed."""
        return not any(result.verdict.outcome is Outcome.FAIL for result in self.results)

    def counts(self) -> dict[Outcome, int]:
        """How many ended in each way."""
        outcomes = [result.verdict.outcome for result in self.results]
        return {outcome: outcomes.count(outcome) for outcome in Outcome}

    def _of(self, profile: str) -> Iterator[Result]:
        return (result for result in self.results if result.profile in ("", profile))
