"""`clusterkit logout`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, JsonOption, load
from clusterkit.cli.ui.console import print_document, say


def logout(
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="Cluster to log out of; all clusters if left out.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """End a kept login and the commands that use it."""
    from clusterkit.commands.login import logout as command

    hosts = command(load(config).cluster(cluster) if cluster else None)
    if as_json:
        print_document({"schema": 1, "hosts": list(hosts)})
        return
    for host in hosts:
        say(f"{host}: logged out")
    if not hosts:
        say("no login was kept")
