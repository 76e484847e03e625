"""`clusterkit login`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import AcceptNewOption, ConfigOption, JsonOption, load, parsed
from clusterkit.cli.ui.console import print_document, say
from clusterkit.errors import ConfigError
from clusterkit.units import format_duration, parse_duration

if TYPE_CHECKING:
    from clusterkit.commands.login import LoggedIn


def login(
    cluster: Annotated[
        str | None,
        typer.Argument(metavar="CLUSTER", help="Cluster to log in to; the default one if left out."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End the login after this time without a command, e.g. 30m; 8h if left out."
        ),
    ] = None,
    accept_new: AcceptNewOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Log in once for all later commands.

    OpenSSH asks for your credentials and keeps the connection open (ControlMaster).
    """
    from clusterkit.commands.login import login as command
    from clusterkit.transport.questions import accepting_new_hosts, ask_on_terminal

    seconds = parsed("--keep", parse_duration, keep) if keep else None
    if seconds == 0:
        raise ConfigError("--keep: must be more than zero", hint="`clusterkit logout` ends a kept login")
    ask = accepting_new_hosts(ask_on_terminal) if accept_new else ask_on_terminal
    done = command(load(config).cluster(cluster), keep=seconds, ask=ask)
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


def print_json(done: LoggedIn) -> None:
    """Prints the same as JSON."""
    found = {"cluster": done.cluster, "host": done.host, "new": done.new, "kept_seconds": done.seconds}
    print_document({"schema": 1, **found})
