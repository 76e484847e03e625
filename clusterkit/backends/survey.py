"""The survey of a site for `init`, and the settings drafted from it. Pure.

Sizes are bytes and times are seconds; None or empty means that the site did not tell.
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
class FoundRuntime:
    """A container runtime."""

    name: str
    """The value of the cluster's setting `container`."""
    version: str | None = None
    setuid: bool | None = None
    """Whether it starts containers with a setuid program; otherwise it needs user namespaces."""
    module: str | None = None
    """The module to load first; None if it is on PATH."""


@dataclass(frozen=True)
class Root:
    """A candidate folder for the work root."""

    path: str
    """As written in settings: with $USER, and $HOME for the home folder."""
    why: str
    """Its source: a variable of the login (`$SCRATCH`), or `usual`."""
    exists: bool
    writable: bool
    """Whether the user can write to it or create it."""
    free: int | None = None
    total: int | None = None
    quota_left: int | None = None
    """Bytes left in the user's quota."""
    file_system: str | None = None
    """Its type, e.g. `nfs` or `lustre`."""
    faults: tuple[OwnershipFault, ...] = ()
    """Ways in which others could change a work root in it."""

    @property
    def left(self) -> int | None:
        """Bytes that can be written: the smaller of free space and quota."""
        sizes = [value for value in (self.free, self.quota_left) if value is not None]
        return min(sizes) if sizes else None


@dataclass(frozen=True)
class SiteSurvey:
    """The survey of a site."""

    host_name: str
    """The machine's own name."""
    user: str
    groups: tuple[str, ...] = ()
    login_shell: bool = False
    """Whether only a login shell has the scheduler's commands on PATH."""
    runtimes: tuple[FoundRuntime, ...] = ()
    """The best one first."""
    user_namespaces: bool | None = None
    """Whether the login node lets users create user namespaces."""
    roots: tuple[Root, ...] = ()
    chosen: tuple[OwnershipFault, ...] = ()
    """Ways in which others could change the work root chosen already."""
    rsync: str | None = None
    """rsync's version."""
    workspaces: bool = False
    """Whether the site provides workspaces with `ws_allocate` (hpc-workspace)."""
    internet: bool | None = None
    """Whether the login node reaches the internet; compute nodes may differ."""
    silent: tuple[str, ...] = ()
    """Questions without an answer in time."""

    @property
    def scheduler(self) -> str:
        """The scheduler found, for people."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether jobs can be submitted now."""
        raise NotImplementedError


@dataclass(frozen=True)
class Option:
    """One answer to a choice."""

    value: str
    about: str


@dataclass(frozen=True)
class Choice:
    """A choice with several good answers; the first is suggested."""

    flag: str
    """The command-line option that answers it."""
    question: str
    options: tuple[Option, ...]


def root_choice(survey: SiteSurvey) -> Choice:
    """Returns candidate work roots, the best first, one per file system.

    Folders that others could change are left out.
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
    """A missing requirement, and the next step."""

    what: str
    do: str


@dataclass(frozen=True)
class Wishes:
    """The user's options and answers. None leaves the choice to the survey."""

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
    own: bool = False
    """Whether the project has a program of its own, and needs nothing of the bundled trainer."""


@dataclass(frozen=True)
class FoundGpu:
    """A GPU type that the user may request, and its partition."""

    name: str
    """The name in profiles."""
    partition: str
    nodes: int
    per_node: int
    """GPUs per node."""
    cpus: int
    """CPUs per node."""
    limit: int | None
    """Longest time of a job, seconds; None without a limit."""


@dataclass(frozen=True, kw_only=True)
class SiteDraft(SettingsDraft):
    """The drafted settings of one cluster, and remarks about it."""

    gpus: tuple[FoundGpu, ...]
    missing: tuple[Missing, ...] = ()


class Surveyor(Protocol):
    """Surveys the sites of one kind of cluster."""

    seconds: float
    """Time limit of a survey."""

    def argv(
        self, root: str | None = None, *, trust: Iterable[str] = (), group: str | None = None
    ) -> list[str]:
        """Returns the command that surveys the site, without changing anything.

        Args:
            root: a work root chosen already, as in settings.
            trust: users who may own, and groups that may write to, the folders.
            group: one more trusted group.
        """
        ...

    def parse(self, answer: str) -> SiteSurvey:
        """Parses that command's output. Raises TransportError if it is empty or was cut off."""
        ...

    def check(self, survey: SiteSurvey, *, account: str | None, partition: str | None) -> None:
        """Raises ConfigError if the user has no such account or partition on the site."""
        ...

    def accounts(self, survey: SiteSurvey, partition: str | None, before: Mapping[str, Any]) -> Choice:
        """Returns the accounts that may be charged for jobs.

        Args:
            survey: the site's survey.
            partition: the requested one.
            before: the cluster's table in the settings; empty for a new one.
        """
        ...

    def draft(
        self, survey: SiteSurvey, wishes: Wishes, *, before: Mapping[str, Any], shipped: Mapping[str, Profile]
    ) -> SiteDraft:
        """Drafts the settings for the site.

        Args:
            survey: the site's survey.
            wishes: the user's options and answers.
            before: the cluster's table in the existing file; empty for a new one.
            shipped: the profiles that ship with clusterkit, by name.
        """
        ...

    def check_usable(self, survey: SiteSurvey, host: str) -> None:
        """Raises SchedulerError if the site accepts no jobs."""
        ...


def _about(root: Root) -> str:
    """Returns a folder's file system in a few words, without figures that change."""
    words = [root.why if root.why != "usual" else "", f"{format_bytes(root.total)}" if root.total else ""]
    words.append(root.file_system or "")
    if root.quota_left is not None:
        words.append("with a quota")
    if _fleeting(root):
        words.append("many sites delete old files from such folders")
    return ", ".join(filter(None, words)) or "its free space is not known"


def _merit(root: Root) -> tuple[object, ...]:
    home = root.path.startswith("$HOME")
    roomy = root.left is None or root.left >= _ROOMY
    return (roomy, not home, not _fleeting(root), root.exists, root.total or 0)


def _fleeting(root: Root) -> bool:
    return "scratch" in f"{root.why} {root.path}".lower()
