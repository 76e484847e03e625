"""The results of an examination; a check whose requirement failed is skipped. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clusterkit.backends.checks import Check, Outcome, Verdict, failed, skipped
from clusterkit.errors import ClusterkitError


@dataclass(frozen=True)
class Result:
    """A check's verdict in one place."""

    check: Check[Any]
    verdict: Verdict
    profile: str = ""
    """Empty for a check without a profile."""
    fixed: str = ""
    """What `--fix` did before the check was judged."""


@dataclass
class Sheet:
    """The results so far."""

    cluster: str = ""
    """The cluster's name in the settings; empty if these could not be read."""
    results: list[Result] = field(default_factory=list)
    fixes: dict[str, str] = field(default_factory=dict)
    """Fixes by the name of their check."""

    def add(self, check: Check[Any], judge: Callable[[], Verdict], profile: str = "") -> Result:
        """Make a check and record its verdict; it is skipped if a requirement failed.

        Args:
            check: the check.
            judge: judges it; an error that it raises is the verdict.
            profile: whose; empty for a check without a profile.
        """
        because = self.because(check, profile)
        try:
            verdict = skipped(because) if because else judge()
        except ClusterkitError as error:
            verdict = fault(error)
        result = Result(check, verdict, profile, self.fixes.get(check.name, ""))
        self.results.append(result)
        return result

    def because(self, check: Check[Any], profile: str = "") -> str:
        """Why a check cannot be made; empty if it can."""
        for result in self.results:
            if result.check.name not in check.needs or result.profile not in ("", profile):
                continue
            if result.verdict.outcome is Outcome.FAIL:
                return f"{result.check.name} failed"
            if result.verdict.outcome is Outcome.SKIPPED:
                return result.verdict.evidence
        return ""

    def failed(self, name: str) -> bool:
        """Whether a check with this name has failed for any profile."""
        return any(
            result.check.name == name and result.verdict.outcome is Outcome.FAIL for result in self.results
        )

    @property
    def works(self) -> bool:
        """Whether nothing has failed."""
        return not any(result.verdict.outcome is Outcome.FAIL for result in self.results)

    def counts(self) -> dict[Outcome, int]:
        """Number of results by outcome."""
        outcomes = [result.verdict.outcome for result in self.results]
        return {outcome: outcomes.count(outcome) for outcome in Outcome}


def fault(error: ClusterkitError) -> Verdict:
    """An error as its check's verdict."""
    return failed(error.cause, error.hint or "")
