"""A user's requests: runs to submit, and changes to a resubmitted run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterkit.config.options import NATIVE_OPTION
from clusterkit.runs.after import After
from clusterkit.snapshots import Allow

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.runs.sweep import SweepAxis


@dataclass(frozen=True)
class SubmitRequest:
    """One run to submit, or a group with sweep axes, stages or packs."""

    cluster: Cluster
    profile: Profile
    name: str | None = None
    seed: int | None = None
    arguments: tuple[str, ...] = ()
    """Arguments after `--`, appended verbatim to the program's argv."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    unlock: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    """Scheduler options, `--option=value`, that override all configured ones."""
    verify_image: bool = False
    """Whether the job reads its whole image and checks the digest before it starts the container."""
    allow_large: Allow | None = None
    """Decides whether files over the size limit may be sent; None refuses."""
    until_done: bool | None = None
    """Whether to continue past the time limit; None uses the profile's setting, or else the project's."""
    after: tuple[After, ...] = ()
    """Runs that must end before this one starts."""
    given: tuple[str, ...] = ()
    """Options that changed the profile, as typed, e.g. `--time 4h`."""
    axes: tuple[SweepAxis, ...] = ()
    """The sweep's axes."""
    max_parallel: int | None = None
    """Maximum number of the group's jobs that run at a time; None leaves it to the scheduler."""
    pack: int = 1
    """Number of runs that share one job and its GPU."""
    then: tuple[str, ...] = ()
    """Profiles of the following stages."""
    then_always: bool = False
    """Whether a stage starts even if the previous one failed."""
    in_one: bool = False
    """Whether one process trains all runs of a pack."""

    @property
    def several(self) -> bool:
        """Whether a group is requested, even of one run."""
        return bool(self.axes or self.then) or self.pack > 1


@dataclass(frozen=True)
class Changes:
    """Changes to a resubmitted run; None leaves a value unchanged."""

    profile: Profile | None = None
    """Other resources; the recipe and the number of environments stay."""
    cluster: str | None = None
    """The cluster that the run moves to."""
    time: int | None = None
    """Time limit in seconds."""
    total_steps: int | None = None
    until_done: bool | None = None
    native: tuple[str, ...] = ()
    """Scheduler options."""


def goes_on(settings: Settings, request: SubmitRequest) -> bool:
    """Returns whether a run continues past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


def command_words(request: SubmitRequest) -> tuple[str, ...]:
    """Returns the arguments of `clusterkit submit` for the same run, without its dependencies."""
    words = ["--cluster", request.cluster.name, "--profile", request.profile.name]
    if request.name is not None:
        words += ["--name", request.name]
    if request.seed is not None:
        words += ["--seed", str(request.seed)]
    words += request.given
    for name, value in request.overrides.items():
        words += ["--set", f"{name}={value}"]
    for name in request.unlock:
        words += ["--unlock", name]
    for option in request.native:
        words += [NATIVE_OPTION, option]
    if request.until_done is not None:
        words.append("--until-done" if request.until_done else "--not-until-done")
    if request.verify_image:
        words.append("--verify-image")
    return (*words, "--", *request.arguments) if request.arguments else tuple(words)
