"""`clusterkit login`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load
from clusterkit.cli.ui.console import out
from clusterkit.commands.login import LoggedIn
from clusterkit.units import format_duration


def login(
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="The default one if left out.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End it after so long without a command, e.g. 30m; 8h if left out."
        ),
    ] = None,
    accept_new: Annotated[
        bool,
        typer.Option("--accept-new", help="Accept the key of a host not known yet; a changed one never."),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Log in once, for all later commands.

    A background process holds the connection; nothing secret is written down.
    """
    from clusterkit.commands.login import login as verb
    from clusterkit.errors import ConfigError
    from clusterkit.transport.questions import accepting_new_hosts, ask_on_terminal
    from clusterkit.units import parse_duration

    try:
        seconds = parse_duration(keep) if keep else None
    except ValueError as error:
        raise ConfigError(f"--keep: {error}") from error
    if seconds == 0:
        raise ConfigError("--keep: must be more than zero", hint="`clusterkit logout` ends a kept login")
    ask = accepting_new_hosts(ask_on_terminal) if accept_new else ask_on_terminal
    show_login(verb(load(config).cluster(cluster), keep=seconds, ask=ask))


def show_login(done: LoggedIn) -> None:
    """Prints one line: the host, how long the login is kept, and how to end it."""
    state = "logged in" if done.new else "already logged in"
    out.print(
        f"{done.cluster} ({done.host}): {state}; kept until {format_duration(done.seconds)} pass without a "
        f"command, or `clusterkit logout {done.cluster}`",
        markup=False,
        soft_wrap=True,
    )
