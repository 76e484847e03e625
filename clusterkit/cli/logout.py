"""`clusterkit logout`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load


def logout(
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="Every one if left out.")] = None,
    config: ConfigOption = None,
) -> None:
    """End a kept login and the commands that use it."""
    from clusterkit.cli.ui.console import out
    from clusterkit.commands.login import logout as verb

    hosts = verb(load(config).cluster(cluster) if cluster else None)
    for host in hosts:
        out.print(f"{host}: logged out", markup=False, soft_wrap=True)
    if not hosts:
        out.print("no login was kept", markup=False)
