"""Judges this machine. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.backends.checks import Verdict, failed, passed, warned
from clusterkit.errors import ClusterkitError
from clusterkit.hardware import Hardware, Shortage
from clusterkit.units import format_bytes

OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 14)
OLDEST_RSYNC = (3, 1)
"""The first version with --info=progress2."""
_LITTLE, _SCARCE = 100 << 20, 2 << 30
"""Free bytes for results below which none, or only few, fit."""
_SLOW_LOGIN = 10.0
"""Seconds."""


def fault(error: ClusterkitError, cure: str = "") -> Verdict:
    """An error as its check's verdict."""
    return failed(error.cause, error.hint or cure)


def python(version: tuple[int, int], text: str) -> Verdict:
    """The interpreter."""
    if OLDEST_PYTHON <= version < FIRST_UNTRIED_PYTHON:
        return passed(text)
    return warned(f"{text} is not one of 3.11 to 3.13", "python3.12 -m venv .venv")


def settings(files: Sequence[str], cluster: str, profiles: Sequence[str]) -> Verdict:
    """The verdict on readable settings."""
    where = ", ".join(files) or "no settings file, only what is built in"
    names = f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"
    return passed(f"{where}; cluster {cluster}, {names}")


def cluster(others: Sequence[str], chosen: str, host: str | None) -> Verdict:
    """Whether any cluster beside this machine is configured."""
    if not others:
        return warned("no cluster is configured: runs go to this machine", "clusterkit init")
    return passed(f"{chosen}: {host or 'this machine'}")


def fit(lacking: Sequence[Shortage], has: Hardware, asks: str, cure: str) -> Verdict:
    """Whether this machine, which has no queue to refuse a job, meets a profile's request."""
    if not lacking:
        return passed(f"{asks}; this machine has {has.words}")
    text = f"{'; '.join(map(str, lacking))} ({has.words})"
    return failed(text, cure) if lacking[0].never else warned(text, cure)


def disk_here(free: int, folder: str) -> Verdict:
    """Whether there is space for results."""
    text = f"{format_bytes(free)} free in {folder}"
    if free < _LITTLE:
        return failed(text, "make room, or set `results` of [project] to a larger disk")
    if free < _SCARCE:
        return warned(text, "make room, or set `results` of [project] to a larger disk")
    return passed(text)


def rsync_version(said: str, where: str) -> Verdict:
    """The version from `rsync --version`; empty if missing."""
    found = re.search(r"version\s+v?(\d+)\.(\d+)(\S*)", said)
    install = "apt install rsync, dnf install rsync or brew install rsync"
    if not found:
        if "openrsync" in said:
            return warned(f"{where} has openrsync; files travel by SFTP where it lacks an option", install)
        return warned(f"no rsync on {where}: files travel by SFTP, and changed files whole", install)
    version = f"rsync {found[1]}.{found[2]}{found[3]}"
    if (int(found[1]), int(found[2])) < OLDEST_RSYNC:
        return warned(f"{version} is older than 3.1", install)
    return passed(version)


def wandb_login(*, key: bool, url: str, client: str, trouble: ClusterkitError | None) -> Verdict:
    """The key and the client that uploads.

    Args:
        key: whether there is one for the server in use.
        url: the server's.
        client: the client's version; empty if it is unusable.
        trouble: why it is unusable.
    """
    if not key:
        return warned(f"no key for {url}: results come home and are not uploaded", "wandb login")
    if trouble is not None:
        return warned(trouble.cause, trouble.hint or "")
    return passed(f"a key for {url}, which stays here; wandb {client}")


@dataclass(frozen=True)
class Key:
    """A private key file."""

    path: str
    mode: int
    """Permission bits."""

    @property
    def open(self) -> bool:
        """Whether others may read it; OpenSSH then refuses to use it."""
        return bool(self.mode & 0o077)


def ssh_key(keys: Sequence[Key], in_agent: int) -> Verdict:
    """Whether there are usable keys for the login."""
    open_ones = [key for key in keys if key.open]
    if open_ones:
        key = open_ones[0]
        return warned(
            f"{key.path} may be read by others (mode {key.mode:o}): ssh refuses such a key",
            f"chmod 600 {shlex.quote(key.path)}",
        )
    if not keys and not in_agent:
        return warned("no key file and no agent: each login asks for a password", "ssh-keygen -t ed25519")
    found = [key.path for key in keys]
    return passed(", ".join([*found, *([f"{in_agent} in the agent"] if in_agent else [])]))


def kept_login(alive: Sequence[str], stale: Sequence[str]) -> Verdict:
    """The sockets of kept logins: hosts that answer, and paths of dead sockets."""
    if stale:
        return warned(f"nobody answers at {', '.join(stale)}", "clusterkit logout")
    return passed(f"kept: {', '.join(alive)}" if alive else "none is kept; each command logs in")


def logged_in(user: str, seconds: float, *, kept: bool) -> Verdict:
    """The verdict on a successful login."""
    how = "over a kept login" if kept else "logged in"
    text = f"{how} as {user} in {seconds:.1f} s"
    return (
        warned(text, "clusterkit login keeps one login for all commands")
        if seconds > _SLOW_LOGIN
        else passed(text)
    )
