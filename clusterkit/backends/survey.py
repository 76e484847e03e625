"""What `init` asks of a site before there are settings, and what it makes of the answer. Pure.

Sizes are bytes and times seconds, as everywhere; None or nothing stands for what the site did not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from clusterkit.config.merge import SettingsDraft
from clusterkit.config.models import Profile
from clusterkit.ownership import OwnershipFault
from clusterkit.units import format_bytes

_ROOMY = 50 * 2**30
"""Bytes: an image, its unpacked copy and a few runs."""
_FLEETING = ("tmpfs", "ramfs", "proc", "devpts")


@dataclass(frozen=True)
class Runtime:
    """A container runtime."""

    name: str
    """`apptainer` or `singularity`, the command."""
    version: str | None = None
    setuid: bool | None = None
    """Whether it starts containers with the help of a setuid program; else it needs user namespaces."""
    module: str | None = None
    """The module to load first; None where it is on PATH."""


@dataclass(frozen=True)
class Root:
    """A folder that the work root could lie in."""

    path: str
    """As it should be written in the settings: with $USER, and $HOME for the home folder."""
    why: str
    """Where the idea came from: a variable of the login (`$SCRATCH`), or `usual`."""
    exists: bool
    writable: bool
    """Whether the user can write to it, or make it."""
    free: int | None = None
    total: int | None = None
    quota_left: int | None = None
    """What the user's quota still allows there."""
    file_system: str | None = None
    """Its type, e.g. `nfs` or `lustre`."""
    faults: tuple[OwnershipFault, ...] = ()
    """How others could change a work root below it."""

    @property
    def left(self) -> int | None:
        """What can be written: the smaller of free space and quota."""
        known = [value for value in (self.free, self.quota_left) if value is not None]
        return min(known) if known else None


@dataclass(frozen=True)
class SiteSurvey:
    """All that one look at a site has shown."""

    host_name: str
    """What the machine calls itself."""
    user: str
    groups: tuple[str, ...] = ()
    login_shell: bool = False
    """Whether only a login shell has the scheduler's commands on PATH."""
    runtimes: tuple[Runtime, ...] = ()
    """The best one first."""
    user_namespaces: bool | None = None
    """Whether the login node lets users make user namespaces."""
    roots: tuple[Root, ...] = ()
    chosen: tuple[OwnershipFault, ...] = ()
    """How others could change the work root that was chosen already."""
    rsync: str | None = None
    """Its version."""
    workspaces: bool = False
    """Whether the site hands out folders by `ws_allocate` (hpc-workspace)."""
    internet: bool | None = None
    """Whether the login node reaches the internet; of compute nodes that says nothing."""
    silent: tuple[str, ...] = ()
    """Questions that were not answered in time."""

    @property
    def scheduler(self) -> str:
        """The scheduler that was found, for people."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether jobs can be submitted as it is."""
        raise NotImplementedError


@dataclass(frozen=True)
class Option:
    """One answer to a choice."""

    value: str
    about: str


@dataclass(frozen=True)
class Choice:
    """Something with more than one good answer; the first is the suggested one."""

    flag: str
    """The option of the command line that answers it."""
    question: str
    options: tuple[Option, ...]


def root_choice(survey: SiteSurvey) -> Choice:
    """Folders the work root could be, the best first. A file system that two of them share counts once.

    None of those that others could change.
    """
    able = [
        one for one in survey.roots if one.writable and one.file_system not in _FLEETING and not one.faults
    ]
    able.sort(key=_merit, reverse=True)
    found: dict[object, Option] = {}
    for root in able:
        below = root.path if "$USER" in root.path or root.path.startswith("$HOME") else f"{root.path}/$USER"
        key = (root.file_system, root.total, root.quota_left) if root.total else root.path
        found.setdefault(key, Option(f"{below}/clusterkit", _about(root)))
    return Choice("--root", "Where may clusterkit keep images, code and runs?", tuple(found.values()))


@dataclass(frozen=True)
class Missing:
    """One thing, and the next step."""

    what: str
    do: str


@dataclass(frozen=True)
class Wishes:
    """What the person has said, by options or answers. None leaves it to the survey."""

    name: str
    root: str
    host: str | None = None
    root_about: str = ""
    """A few words on the root's file system."""
    account: str | None = None
    partition: str | None = None
    container: str | None = None
    image: str | None = None
    ssh_config: str | None = None


@dataclass(frozen=True)
class FoundGpu:
    """A GPU type that the user may ask for, and where."""

    name: str
    """As profiles ask for it."""
    partition: str
    nodes: int
    per_node: int
    """GPUs of a node."""
    cpus: int
    """Of a node."""
    limit: int | None
    """Seconds a job may have; None without a limit."""


@dataclass(frozen=True, kw_only=True)
class SiteDraft(SettingsDraft):
    """The settings of one cluster, and what is to be told of it."""

    gpus: tuple[FoundGpu, ...]
    missing: tuple[Missing, ...] = ()


class Surveyor(Protocol):
    """How the sites of one kind of cluster are described."""

    seconds: float
    """How long a look may take."""

    def argv(
        self, root: str | None = None, *, trust: Iterable[str] = (), group: str | None = None
    ) -> list[str]:
        """The command that looks at the site; it changes nothing there.

        Args:
            root: a work root that was chosen already, as settings hold it.
            trust: users who may own, and groups who may write to, the folders there.
            group: one more such group.
        """
        ...

    def parse(self, answer: str) -> SiteSurvey:
        """What that command said. Raises TransportError where it said nothing, or was cut off."""
        ...

    def check(self, survey: SiteSurvey, *, account: str | None, partition: str | None) -> None:
        """Raises ConfigError where the site has no such account or partition for the user."""
        ...

    def accounts(self, survey: SiteSurvey, partition: str | None, before: Mapping[str, Any]) -> Choice:
        """The accounts that may pay for the jobs.

        Args:
            survey: of the site.
            partition: that was asked for.
            before: the cluster's table in the settings; empty for a new one.
        """
        ...

    def draft(
        self, survey: SiteSurvey, wishes: Wishes, *, before: Mapping[str, Any], shipped: Mapping[str, Profile]
    ) -> SiteDraft:
        """The settings that fit the site.

        Args:
            survey: of the site.
            wishes: what the person has said.
            before: the cluster's table in the file that is written again; empty for a new one.
            shipped: the profiles that ship with clusterkit, by name.
        """
        ...

    def check_usable(self, survey: SiteSurvey, host: str) -> None:
        """Raises SchedulerError where nothing could be submitted there."""
        ...


def _about(root: Root) -> str:
    """A folder's file system in a few words that stay true; what is free does not."""
    words = [root.why if root.why != "usual" else "", f"{format_bytes(root.total)}" if root.total else ""]
    words.append(root.file_system or "")
    if root.quota_left is not None:
        words.append("with a quota")
    if _fleeting(root):
        words.append("many sites delete old files from such folders")
    return ", ".join(filter(None, words)) or "nothing is known about its room"


def _merit(root: Root) -> tuple[object, ...]:
    home = root.path.startswith("$HOME")
    roomy = root.left is None or root.left >= _ROOMY
    return (roomy, not home, not _fleeting(root), root.exists, root.total or 0)


def _fleeting(root: Root) -> bool:
    return "scratch" in f"{root.why} {root.path}".lower()
