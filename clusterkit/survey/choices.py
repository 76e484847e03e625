"""What a look at a site leaves open: the folder to work in and the account to charge. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.errors import ConfigError
from clusterkit.survey.access import may_charge
from clusterkit.survey.facts import Root, SiteSurvey, Slurm
from clusterkit.survey.gpus import GpuType

_ROOMY = 50 * 2**30
"""Bytes: an image, its unpacked copy and a few runs."""
_FLEETING = ("tmpfs", "ramfs", "proc", "devpts")


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
        found.setdefault(key, Option(f"{below}/clusterkit", about_root(root)))
    return Choice("--root", "Where may clusterkit keep images, code and runs?", tuple(found.values()))


def account_choice(survey: SiteSurvey, types: tuple[GpuType, ...]) -> Choice:
    """Accounts that may use the chosen partitions, the user's default one first."""
    slurm = survey.slurm or Slurm()
    partitions = [one.offer.partition for one in types] or list(slurm.partitions)
    names = [
        name
        for name in dict.fromkeys(one.account for one in slurm.associations)
        if any(may_charge(slurm, name, partition) for partition in partitions)
    ]
    names.sort(key=lambda name: name != slurm.default_account)
    options = [
        Option(name, "your default account" if name == slurm.default_account else "an account of yours")
        for name in names
    ]
    return Choice("--account", "Which account pays for the jobs?", tuple(options))


def known_account(survey: SiteSurvey, account: str) -> str:
    """The account, if it is one of the user's or nothing is known about those.

    Raises:
        ConfigError: it is none of the user's.
    """
    names = sorted({one.account for one in survey.slurm.associations}) if survey.slurm else []
    if names and account not in names:
        raise ConfigError(
            f"{survey.user} has no account {account!r} on {survey.host_name}",
            hint=f"yours: {', '.join(names)}",
        )
    return account


def known_partition(survey: SiteSurvey, partition: str) -> str:
    """The partition, if the site has it or nothing is known about those.

    Raises:
        ConfigError: the site has none of this name.
    """
    names = [one.name for one in survey.slurm.partitions] if survey.slurm else []
    if names and partition not in names:
        raise ConfigError(
            f"{survey.host_name} has no partition {partition!r}", hint=f"there are: {', '.join(names)}"
        )
    return partition


def about_root(root: Root) -> str:
    """A folder's file system in a few words that stay true; what is free does not."""
    words = [root.why if root.why != "usual" else "", f"{_size(root.total)}" if root.total else ""]
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


def _size(size: int) -> str:
    return f"{size / 2**40:.1f} TiB" if size >= 2**40 else f"{size / 2**30:.0f} GiB"
