"""`clusterkit login` and `clusterkit logout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.ui.console import print_document, say
from clusterkit.errors import ConfigError, TransportError
from clusterkit.project import load
from clusterkit.transport.openssh import kept
from clusterkit.transport.resolve import resolve
from clusterkit.units import format_duration, parse_duration, parsed

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.transport.questions import Ask


def login(
    cluster: Annotated[
        str | None,
        typer.Argument(metavar="CLUSTER", help="Cluster to log in to; the default one if left out."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End the login after this time without a keep_login, e.g. 30m; 8h if left out.",
        ),
    ] = None,
    accept_new: options.AcceptNew = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Log in once for all later commands.

    OpenSSH asks for your credentials and keeps the connection open (ControlMaster).

    Examples:
      # log in to the default cluster
      clusterkit login
      # log out after 30 minutes without a command
      clusterkit login uni --keep 30m
      # a host that you never logged in to
      clusterkit login uni --accept-new

    See also: clusterkit logout, ssh.md
    """
    from clusterkit.transport.questions import accepting_new_hosts, ask_on_terminal

    seconds = parsed("--keep", parse_duration, keep) if keep else None
    if seconds == 0:
        raise ConfigError("--keep: must be more than zero", hint="`clusterkit logout` ends a kept login")
    ask = accepting_new_hosts(ask_on_terminal) if accept_new else ask_on_terminal
    done = keep_login(load(config).cluster(cluster), keep=seconds, ask=ask)
    if as_json:
        print_json(done)
        return
    state = "logged in" if done.new else "already logged in"
    if done.seconds is None:
        say(f"{done.cluster} ({done.host}): {state}, over an ssh connection of your own (ControlPath)")
        return
    say(
        f"{done.cluster} ({done.host}): {state}; kept until {format_duration(done.seconds)} pass without a "
        f"command, or `clusterkit logout {done.cluster}`"
    )


def logout(
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="Cluster to log out of; all clusters if left out.")
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """End a kept login and the commands that use it.

    Examples:
      clusterkit logout      # every kept login
      clusterkit logout uni  # only the login to this cluster

    See also: clusterkit login, ssh.md
    """
    hosts = end_logins(load(config).cluster(cluster) if cluster else None)
    if as_json:
        print_document({"schema": 1, "hosts": list(hosts)})
        return
    for host in hosts:
        say(f"{host}: logged out")
    if not hosts:
        say("no login was kept")


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


def keep_login(cluster: Cluster, *, keep: int | None, ask: Ask) -> LoggedIn:
    """Logs in to a cluster, and lets OpenSSH keep the login for later commands.

    Args:
        cluster: to log in to.
        keep: seconds without a command until the login ends; None for the cluster's setting.
        ask: lends the terminal to ssh.

    Raises:
        ConfigError: the cluster is this machine, or wants paramiko.
        TransportError: the host cannot be reached or trusted, refuses the login, or it cannot be kept.
    """
    from clusterkit.transport.openssh import master

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


def end_logins(cluster: Cluster | None) -> list[str]:
    """Ends kept logins, and all commands that use them. A master of the user's own is left alone.

    Args:
        cluster: whose login to end; None for all logins that clusterkit keeps for this user.

    Returns:
        The hosts whose logins were ended.

    Raises:
        TransportError: the ssh configuration cannot be read.
    """
    from clusterkit.transport.openssh import master

    paths = kept.socket_paths()
    if cluster is not None:
        name = kept.socket_name(resolve(cluster.host, config=cluster.login_config)) if cluster.host else ""
        paths = [path for path in paths if path.name == name]
    hosts = {path: noted.host if (noted := kept.kept_for(path)) else path.name for path in paths}
    return [hosts[path] for path in paths if master.end(path)]


def print_json(done: LoggedIn) -> None:
    """Prints the same as JSON."""
    found = {"cluster": done.cluster, "host": done.host, "new": done.new, "kept_seconds": done.seconds}
    print_document({"schema": 1, **found})
