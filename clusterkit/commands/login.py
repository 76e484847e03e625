"""login, logout: keep a login to a cluster open for later commands, and end it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError, TransportError
from clusterkit.transport.kept import client, folder
from clusterkit.transport.kept.start import NotKeptError, start
from clusterkit.transport.questions import Ask
from clusterkit.transport.resolve import resolve

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

DEFAULT_SECONDS = 8 * 3600
"""Eight hours without a command: a working day."""


@dataclass(frozen=True)
class LoggedIn:
    """A kept login."""

    cluster: str
    host: str
    new: bool
    """Whether this command created it."""
    seconds: int
    """Time without a command after which the login ends."""


def login(cluster: Cluster, *, keep: int | None, ask: Ask) -> LoggedIn:
    """Log in to a cluster, and keep the login in a background process for later commands.

    Args:
        cluster: to log in to.
        keep: seconds without a command until the login ends; None for the cluster's setting.
        ask: answers the login's questions.

    Raises:
        ConfigError: the cluster is this machine.
        TransportError: the host cannot be reached or trusted, refuses the login, or it cannot be kept.
    """
    if cluster.host is None:
        raise ConfigError(f"cluster {cluster.name} is this machine; there is nothing to log in to")
    seconds = keep or cluster.keep_login or DEFAULT_SECONDS
    name = folder.socket_name(resolve(cluster.host, config=cluster.ssh_config))
    living = [found for path in folder.socket_paths() if path.name == name and (found := client.find(path))]
    try:
        link = start(name, host=cluster.host, ssh_config=cluster.ssh_config, keep=seconds, ask=ask)
    except NotKeptError as error:
        raise TransportError(
            f"the login to {cluster.host} cannot be kept: {error}",
            hint="the other commands work without it; each logs in by itself",
        ) from error
    for one in (link, *living):
        one.close()
    return LoggedIn(cluster.name, cluster.host, not living, seconds)


def logout(cluster: Cluster | None) -> list[str]:
    """End kept logins, and all connections that use them.

    Args:
        cluster: whose login to end; None for all of this user's logins.

    Returns:
        The hosts whose logins were ended.

    Raises:
        TransportError: the ssh configuration cannot be read.
    """
    paths = folder.socket_paths()
    if cluster is not None:
        name = folder.socket_name(resolve(cluster.host, config=cluster.ssh_config)) if cluster.host else ""
        paths = [path for path in paths if path.name == name]
    ended = []
    for path in paths:
        host = client.end(path)
        if host is not None:
            ended.append(host)
        else:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()  # no answer; a hung process notices the missing socket and ends later
    return ended
