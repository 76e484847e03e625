"""`clusterkit deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import ClusterOption, ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(deploy)


def deploy(
    cluster: ClusterOption = None,
    image: Annotated[
        Path | None, typer.Option(help="The .sif to send instead of the configured one.", metavar="FILE")
    ] = None,
    verify_image: Annotated[
        bool, typer.Option("--verify-image", help="Check an image that is there already, and mend it.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Send the image and the code to a cluster.

    Only what is new travels; an interrupted upload goes on where it was.
    """
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.ui.submit import show_deployed
    from clusterkit.verbs.deploy import deploy as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        where = settings.cluster(cluster)
        done = verb(settings, where, ledger, image=image, bar=transfer_bar, verify_image=verify_image)
    show_deployed(done)
