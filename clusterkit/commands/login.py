"""login, logout: keep a login to a cluster open for later commands, and end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError, TransportError
from clusterkit.transport.openssh import kept, master
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
    seconds: int | None
    """Time without a command after which the login ends; None for a master of the user's own."""


def login(cluster: Cluster, *, keep: int | None, ask: Ask) -> LoggedIn:
    """Log in to a cluster, and let OpenSSH keep the login for later commands.

    Args:
        cluster: to log in to.
        keep: seconds without a command until the login ends; None for the cluster's setting.
        ask: lends the terminal to ssh.

    Raises:
        ConfigError: the cluster is this machine, or wants paramiko.
        TransportError: the host cannot be reached or trusted, refuses the login, or it cannot be kept.
    """
    if cluster.host is None:
        raise ConfigError(f"cluster {cluster.name} is this machine and needs no login")
    if cluster.transport == "paramiko":
        raise ConfigError(
            f'cluster {cluster.name} has transport = "paramiko", but only OpenSSH can keep a login',
            hint='set transport = "auto"',
        )
    seconds = keep or cluster.keep_login or DEFAULT_SECONDS
    host = resolve(cluster.host, config=cluster.login_config)
    if link := kept.find(host):
        link.close()
        noted = kept.kept_for(link.path) if link.path != host.control_path else None
        return LoggedIn(cluster.name, cluster.host, False, noted.seconds if noted else None)
    try:
        master.start(host, keep=seconds, ask=ask).close()
    except master.NoMasterError as error:
        raise TransportError(
            f"the login to {cluster.host} cannot be kept: {error}",
            hint="other commands work without it; each of them logs in separately",
        ) from error
    return LoggedIn(cluster.name, cluster.host, True, seconds)


def logout(cluster: Cluster | None) -> list[str]:
    """End kept logins, and all commands that use them. A master of the user's own is left alone.

    Args:
        cluster: whose login to end; None for all logins that clusterkit keeps for this user.

    Returns:
        The hosts whose logins were ended.

    Raises:
        TransportError: the ssh configuration cannot be read.
    """
    paths = kept.socket_paths()
    if cluster is not None:
        name = kept.socket_name(resolve(cluster.host, config=cluster.login_config)) if cluster.host else ""
        paths = [path for path in paths if path.name == name]
    hosts = {path: noted.host if (noted := kept.kept_for(path)) else path.name for path in paths}
    return [hosts[path] for path in paths if master.end(path)]
