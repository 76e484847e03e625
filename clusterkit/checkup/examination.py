"""The state of one examination by `doctor`: its subject and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from clusterkit.checkup import CheckPlace, Result, Sheet, Verdict, named
from clusterkit.checkup.applies import applicable
from clusterkit.checkup.login import Login
from clusterkit.images.image import Image
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.plan import PlannedRun
from clusterkit.transport.base import Bar
from clusterkit.transport.questions import Ask

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Transport

Evidence = TypeVar("Evidence")


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
    fix: bool = False
    """Fix what can be fixed safely."""
    ledger: Ledger | None = None
    image: Image | None = None
    transport: Transport | None = None
    login: Login | None = None
    """The login node's answer."""
    planned: dict[str, PlannedRun] = field(default_factory=dict)
    """A planned run of each profile."""

    @property
    def uploads(self) -> bool:
        """Whether the image is a local file that can be sent."""
        return self.cluster.image is not None and self.cluster.image.is_file()

    def make(
        self,
        place: CheckPlace,
        judges: Mapping[str, Callable[[Evidence], Verdict]],
        evidence: Evidence,
        profile: Profile | None = None,
    ) -> Iterator[Result]:
        """Make the checks of a place that have a judge, either a profile's or those without one."""
        for check in applicable(place, self.cluster, self.settings.project, profile):
            if check.name in judges and check.of_profile == (profile is not None):
                yield self.sheet.add(
                    check, partial(judges[check.name], evidence), profile.name if profile else ""
                )

    def leave_out(
        self, place: CheckPlace, verdict: Verdict, profile: Profile | None = None, *, but: Sequence[str] = ()
    ) -> Iterator[Result]:
        """Give all checks of a place one verdict, except those named."""
        for check in applicable(place, self.cluster, self.settings.project, profile):
            if check.name not in but and check.of_profile == (profile is not None):
                yield self.sheet.add(check, lambda: verdict, profile.name if profile else "")

    def note(self, name: str, judge: Callable[[], Verdict], profile: str = "") -> Iterator[Result]:
        """Make one check if it applies."""
        check = named(name)
        if check in applicable(check.place, self.cluster, self.settings.project):
            yield self.sheet.add(check, judge, profile)
