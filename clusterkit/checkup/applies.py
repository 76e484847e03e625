"""Selects the applicable checks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.checks import Check, CheckPlace
from clusterkit.checkup.catalogue import of_place
from clusterkit.runs.check import wants_gpu

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile, Project

_SSH = {"rsync-here", "ssh-config", "ssh-key", "kept-login", "reachable", "host-key", "login"}
_ELSEWHERE = {
    *(check.name for check in of_place(CheckPlace.LOGIN)),
    "root-shared",
    "node-clock",
    "job",
    "image-visible",
}
_IMAGE = {"image-here", "image-there", "image-whole", "runtime-there", "runtime", "image-visible"}


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
        without |= _IMAGE
    if not cluster.prelude:
        without.add("prelude")
    if not cluster.binds:
        without.add("binds")
    if project.wandb.mode == "disabled":
        without |= {"wandb-login", "wandb-server", "wandb"}
    if profile is not None and not wants_gpu(cluster, profile):
        without |= {check.name for check in of_place(place) if check.of_gpu}
    if not cluster.mps or not backend_of(cluster).can.arrays:
        without.add("mps")
    if profile is not None and not (wants_gpu(cluster, profile) and profile.device != "cpu"):
        without.add("cuda")
    return tuple(check for check in of_place(place) if check.name not in without)


def trains(project: Project, profile: Profile) -> bool:
    """Whether the run uses the bundled trainer, which imports PyTorch, MuJoCo and W&B."""
    program = profile.program or project.program
    if program:
        return "trainer" in program and "-m" in program
    return profile.recipe is not None
