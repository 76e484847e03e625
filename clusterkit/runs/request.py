"""What a person asks for: runs to submit, and changes to a run that is submitted again. Pure."""

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
    """Runs to submit: one, or a group with an axis, a stage or a pack."""

    cluster: Cluster
    profile: Profile
    name: str | None = None
    seed: int | None = None
    arguments: tuple[str, ...] = ()
    """After `--`: appended to the program's argv, to the letter."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    unlock: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    """Options for the scheduler itself, `--option=value`, that win over every configured one."""
    verify_image: bool = False
    """The job reads all of its image and compares the digest before it starts the container."""
    allow_large: Allow | None = None
    """Asked whether files over the size limit may travel; None refuses."""
    until_done: bool | None = None
    """Go on past the time limit; None is what the profile, or else the project, says."""
    after: tuple[After, ...] = ()
    """Runs that must end before it starts."""
    given: tuple[str, ...] = ()
    """Options that have changed the profile, as they were typed: `--time 4h`."""
    axes: tuple[SweepAxis, ...] = ()
    """What is swept."""
    max_parallel: int | None = None
    """Jobs of the group that run at a time; None leaves it to the scheduler."""
    pack: int = 1
    """Runs that share one job and its GPU."""
    then: tuple[str, ...] = ()
    """Profiles of the stages that follow."""
    then_always: bool = False
    """A stage starts also when the one before has failed."""
    in_one: bool = False
    """One process trains all runs of a pack."""

    @property
    def several(self) -> bool:
        """Whether a group is asked for, if only of one run."""
        return bool(self.axes or self.then) or self.pack > 1


@dataclass(frozen=True)
class Changes:
    """What shall be different when a run is submitted again; None leaves a thing as it was."""

    profile: Profile | None = None
    """Other resources; the recipe stays, and so does the number of environments."""
    cluster: str | None = None
    """Where to go on; the run moves there."""
    time: int | None = None
    """Time limit in seconds."""
    total_steps: int | None = None
    until_done: bool | None = None
    native: tuple[str, ...] = ()
    """Options for the scheduler itself."""


def goes_on(settings: Settings, request: SubmitRequest) -> bool:
    """Whether a run is to go on past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


def command_words(request: SubmitRequest) -> tuple[str, ...]:
    """What a person types behind `clusterkit submit` for the same run; what it waited for is left out."""
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
