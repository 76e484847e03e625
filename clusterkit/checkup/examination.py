"""The state of an examination by `doctor`: its subject and its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clusterkit.backends.base import backend_of, vendor
from clusterkit.backends.checks import LIBRARIES, Check, Evidence, Outcome, Scope, Verdict, failed, skipped
from clusterkit.checkup.login import Login
from clusterkit.errors import ClusterkitError
from clusterkit.hardware import VENDORS
from clusterkit.images.image import Image
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import needs_trainer
from clusterkit.submit.check import wants_gpu
from clusterkit.submit.plan import PlannedRun
from clusterkit.transport.base import Bar
from clusterkit.transport.questions import Ask

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile, ProjectTable
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Transport


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
        """Makes a check and records its verdict; it is skipped if a requirement failed.

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
        """Returns why a check cannot be made; empty if it can."""
        for result in self.results:
            if result.check.name not in check.needs or result.profile not in ("", profile):
                continue
            if result.verdict.outcome is Outcome.FAIL:
                return f"{result.check.name} failed"
            if result.verdict.outcome is Outcome.SKIPPED:
                return result.verdict.evidence
        return ""

    def failed(self, name: str) -> bool:
        """Returns whether a check with this name has failed for any profile."""
        return any(
            result.check.name == name and result.verdict.outcome is Outcome.FAIL for result in self.results
        )

    @property
    def works(self) -> bool:
        """Whether nothing has failed."""
        return not any(result.verdict.outcome is Outcome.FAIL for result in self.results)

    def counts(self) -> dict[Outcome, int]:
        """Returns the number of results by outcome."""
        outcomes = [result.verdict.outcome for result in self.results]
        return {outcome: outcomes.count(outcome) for outcome in Outcome}


def fault(error: ClusterkitError) -> Verdict:
    """Returns an error as its check's verdict."""
    return failed(error.cause, error.hint or "")


@dataclass
class Examination:
    """The subject of an examination, and what is known so far."""

    settings: Settings
    cluster: Cluster
    profiles: tuple[Profile, ...]
    sheet: Sheet
    say: Callable[[str], None]
    """Called with a line about what is being waited for."""
    bar: Bar
    ask: Ask
    """Answers the login's questions."""
    stack: ExitStack
    """Closes the ledger and the connection."""
    fix: bool = False
    """Fix what can be fixed safely."""
    ledger: Ledger | None = None
    image: Image | None = None
    transport: Transport | None = None
    login: Login | None = None
    """The login node's answer."""
    planned: dict[str, PlannedRun] = field(default_factory=dict)
    """A planned run of each profile."""
    mentioned: Collection[str] = frozenset(LIBRARIES)
    """Those of `LIBRARIES` that the code of the user's own program mentions; all, as long as it is unread."""

    @property
    def uploads(self) -> bool:
        """Whether the image is a local file that can be sent."""
        return bool(self.cluster.image_files)

    @property
    def deployed(self) -> bool:
        """Whether an image of this project was ever sent there, as far as is known."""
        return self.ledger is None or bool(self.ledger.deployed(self.cluster.name))

    def scope(self, profile: Profile | None) -> Scope:
        """Returns the subject of the checks of a profile, or of those without one."""
        project, profiles = self.settings.project, (profile,) if profile else self.profiles
        trains = any(needs_trainer(each, project.program) for each in profiles)
        scope = scope_of(self.cluster, project, profile)
        return scope if trains else replace(scope, uses=self.mentioned)

    def make(
        self, checks: Sequence[Check[Evidence]], evidence: Evidence, profile: Profile | None = None
    ) -> Iterator[Result]:
        """Makes the checks that apply, either a profile's or those without one."""
        scope = self.scope(profile)
        for check in checks:
            if check.of_profile == (profile is not None) and check.applies(scope):
                name = profile.name if profile else ""
                yield self.sheet.add(check, partial(check.judge, evidence), name)

    def leave_out(
        self,
        checks: Sequence[Check[Any]],
        verdict: Verdict,
        profile: Profile | None = None,
        *,
        only: str = "",
        but: str = "",
    ) -> Iterator[Result]:
        """Gives all checks that apply, only one of them, or all but one, the same verdict."""
        left = [check for check in checks if only in ("", check.name) and check.name != but]
        return self.make([replace(check, judge=lambda _: verdict) for check in left], None, profile)


def scope_of(cluster: Cluster, project: ProjectTable, profile: Profile | None) -> Scope:
    """Returns the subject of the checks, for a profile or for those without one."""
    gpu, can = profile is not None and wants_gpu(cluster, profile), backend_of(cluster).can
    maker = vendor(cluster, profile) if profile else VENDORS[0]
    return Scope(cluster, project, can.queue, can.arrays, profile, gpu, maker)
