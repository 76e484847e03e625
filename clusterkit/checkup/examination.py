"""The state of one examination by `doctor`: its subject and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from clusterkit.backends import backend_of
from clusterkit.checkup import Check, CheckPlace, Result, Sheet, Verdict, named, of_place
from clusterkit.checkup.login import Login
from clusterkit.images.image import Image
from clusterkit.runs.ledger import Ledger
from clusterkit.submit.check import wants_gpu
from clusterkit.submit.plan import PlannedRun
from clusterkit.transport.base import Bar
from clusterkit.transport.questions import Ask

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile, Project
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Transport

Evidence = TypeVar("Evidence")

_SSH = {"rsync-here", "ssh-config", "ssh-key", "kept-login", "reachable", "host-key", "login"}
_ELSEWHERE = {
    *(check.name for check in of_place(CheckPlace.LOGIN)),
    "root-shared",
    "node-clock",
    "job",
    "image-visible",
}
_IMAGE = {"image-here", "image-there", "image-whole", "image-visible"}
_RUNTIME = {"runtime-there", "runtime"}


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

    @property
    def deployed(self) -> bool:
        """Whether an image of this project was ever sent there, as far as is known."""
        return self.ledger is None or self.ledger.deployment(self.cluster.name) is not None

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


def applicable(
    place: CheckPlace, cluster: Cluster, project: Project, profile: Profile | None = None
) -> tuple[Check, ...]:
    """The checks of a place that apply to a cluster and, for checks of profiles, to a profile."""
    without: set[str] = set()
    if cluster.host is None:
        without |= _SSH | {"shell-quiet", "clock", "rsync-there"}
    checks = backend_of(cluster).checks()
    theirs = {check.name for check in checks.checks} if checks else set()
    without |= {check.name for check in of_place(CheckPlace.SCHEDULER)} - theirs
    if not backend_of(cluster).can.queue:
        without |= _ELSEWHERE
    if cluster.container == "none":
        without |= _RUNTIME
    if not cluster.stores_image:
        without |= _IMAGE
    if not cluster.prelude:
        without.add("prelude")
    if not cluster.binds:
        without.add("binds")
    if project.wandb.mode == "disabled":
        without |= {"wandb-login", "wandb-server", "wandb"}
    if profile is not None and not wants_gpu(cluster, profile):
        without |= {check.name for check in of_place(place) if check.of_gpu}
    if profile is not None and profile.nodes == 1:
        without.add("nodes")
    if not cluster.mps or not backend_of(cluster).can.arrays:
        without.add("mps")
    if profile is not None and not (wants_gpu(cluster, profile) and profile.device != "cpu"):
        without.add("cuda")
    return tuple(check for check in of_place(place) if check.name not in without)
