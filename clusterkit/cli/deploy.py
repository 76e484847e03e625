"""`clusterkit deploy`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.submit import large_files
from clusterkit.cli.ui.console import transfer_bar
from clusterkit.project import load_project, open_ledger


def deploy(
    cluster: options.Cluster = None,
    image: Annotated[
        Path | None,
        typer.Option(help="Image to send instead of the configured one.", metavar="FILE"),
    ] = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    send_large: options.SendLarge = False,
    verify_image: Annotated[
        bool,
        typer.Option(
            "--verify-image", help="Verify an image that is already there, and repair it if damaged."
        ),
    ] = False,
    config: options.Config = None,
) -> None:
    """Send the image and the code to a cluster.

    Sends only what is new; an interrupted upload continues where it stopped.

    Examples:
      # image and code to the default cluster
      clusterkit deploy
      # what would be sent, and how long it would take
      clusterkit deploy --dry-run
      # another cluster, another image
      clusterkit deploy --cluster uni --image mine.sif

    See also: clusterkit submit, clusterkit storage prune, images.md
    """
    from clusterkit.site import log_in_ahead

    settings = load_project(config)
    target = settings.cluster(cluster)
    with log_in_ahead(target) as login:  # logs in while the imports run
        from clusterkit.cli.ui.deploy import print_plan_json, show_deployed, show_plan
        from clusterkit.commands.deploy import deploy as command

        with open_ledger(settings) as ledger:
            several = target.stores_image and not image and len(target.image_files) > 1
            done, *others = [
                command(
                    settings,
                    target,
                    ledger,
                    login=login,
                    image=file,
                    bar=transfer_bar,
                    allow_large=large_files(send_large),
                    verify_image=verify_image,
                    only_plan=dry_run,
                )
                for file in (target.image_files if several else (image,))
            ]
            done = replace(done, others=tuple(others))
    if as_json:
        print_plan_json(done, carried_out=not dry_run)
    elif dry_run:
        show_plan(done)
    else:
        show_deployed(done)
