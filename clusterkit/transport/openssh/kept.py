"""Masters that are open already: ours, which keep a login, and the user's own."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.transport.openssh.folder import socket_name, socket_paths
from clusterkit.transport.resolve import HostConfig

if TYPE_CHECKING:
    from clusterkit.transport.openssh.link import OpensshLink

_FRESH_SECONDS = 60.0
_CHECK_SECONDS = 5.0


def find(host: HostConfig) -> OpensshLink | None:
    """A connection over a master that is open: one of ours, else the user's own; None where none answers.

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
