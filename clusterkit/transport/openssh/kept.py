"""Masters that are open already: ours, which keep a login, and the user's own.

The control sockets of ours lie in a folder of the user's own, which nobody else can enter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.transport.resolve import HostConfig

if TYPE_CHECKING:
    from clusterkit.transport.openssh.link import OpensshLink

_FRESH_SECONDS = 60.0
_CHECK_SECONDS = 5.0
_MAX_PATH_BYTES = 86
"""A socket's path has 104 bytes on macOS and 108 on Linux, and ssh adds 17 to a new one for a moment."""
_NAME_CHARACTERS = 16


def find(host: HostConfig) -> OpensshLink | None:
    """Returns a connection over an open master: one of ours, else the user's own; None where none answers.

    A master that was used within the last minute is believed; another one is asked to run a command first,
    for a laptop may have slept since, and ssh would wait for half a minute.
    """
    paths = _candidates(host)
    if not paths:
        return None
    from clusterkit.transport.openssh.link import OpensshLink  # most logins find none

    for path in paths:
        with contextlib.suppress(OSError, EOFError, ValueError):
            link = OpensshLink(path)
            fresh = path != host.control_path and time.time() - path.stat().st_mtime < _FRESH_SECONDS
            if fresh or link.answers(_CHECK_SECONDS):
                if path != host.control_path:
                    os.utime(path)
                return link
            link.close()
    return None


def _candidates(host: HostConfig) -> list[Path]:
    """Control sockets that may lead to a host."""
    name = socket_name(host)
    ours = [path for path in socket_paths() if path.name == name]
    return ours if host.control_path is None else [*ours, host.control_path]


class NotPrivateError(Exception):
    """The folder belongs to somebody else, or others may enter it."""


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder's path: below XDG_RUNTIME_DIR, or in /tmp with the user's id. It may not exist."""
    uid = os.getuid()
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    path = Path(runtime) / "clusterkit"
    fits = len(os.fsencode(path)) + 1 + _NAME_CHARACTERS <= _MAX_PATH_BYTES
    return path if runtime.startswith("/") and fits else Path(f"/tmp/clusterkit-{uid}")  # noqa: S108 - checked


def private_folder(*, create: bool) -> Path:
    """Returns the folder, proved to be ours alone.

    Args:
        create: make it (0700) where it is missing.

    Raises:
        NotPrivateError: somebody else could put a socket there, or open one.
        OSError: it does not exist, or cannot be made.
    """
    path = folder()
    if create:
        path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise NotPrivateError(f"{path} is not a folder of your own with mode 0700")
    return path


def socket_name(host: HostConfig) -> str:
    """Returns the name of a host's socket; another one where ssh would go elsewhere, or as somebody else."""
    parts = (
        host.alias,
        host.hostname,
        str(host.port),
        host.user,
        ",".join(host.proxy_jump),
        host.proxy_command or "",
        host.host_key_alias or "",
        str(host.config or ""),
    )
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    return digest[:_NAME_CHARACTERS]


def socket_paths() -> list[Path]:
    """Returns the sockets that are there, living or not."""
    try:
        private = private_folder(create=False)
    except (NotPrivateError, OSError):
        return []
    return sorted(path for path in private.iterdir() if len(path.name) == _NAME_CHARACTERS)


@dataclass(frozen=True)
class KeptFor:
    """What is written down about a kept login: nothing secret."""

    host: str
    """As the user named it."""
    seconds: int
    """Time without a command after which it ends."""


def note_file(path: Path) -> Path:
    """Returns the file beside a socket that is locked during its login, and then says what it is for."""
    return path.with_suffix(".lock")


def kept_for(path: Path) -> KeptFor | None:
    """Returns what the login behind a socket is for; None where nobody has written it down."""
    try:
        host, seconds = note_file(path).read_text().split("\n")[:2]
        return KeptFor(host, int(seconds))
    except (OSError, ValueError):
        return None
