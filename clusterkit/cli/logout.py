"""`clusterkit logout`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load
from clusterkit.cli.ui.console import say


def logout(
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="Cluster to log out of; all clusters if left out.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """End a kept login and the commands that use it."""
    from clusterkit.commands.login import logout as command

    hosts = command(load(config).cluster(cluster) if cluster else None)
    for host in hosts:
        say(f"{host}: logged out")
    if not hosts:
        say("no login was kept")
