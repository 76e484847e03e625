"""`clusterkit images` and `clusterkit gc`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ClusterOption, ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(images)
    app.command()(gc)


def images(
    cluster: ClusterOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """List the images of a cluster.

    Size, when each was last used, and the runs that use it; * marks what this project deploys.
    """
    from clusterkit.cli.ui.images import print_json, show_images
    from clusterkit.commands.images import list_images

    settings = load(config)
    where = settings.cluster(cluster)
    with open_ledger(settings, only_reads=True) as ledger:
        rows = list_images(where, ledger)
    (print_json if as_json else show_images)(where.name, rows)


def gc(
    cluster: ClusterOption = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also what only ended runs used.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Remove images and snapshots that no run uses.

    Never what a waiting or running run uses, or this project deploys; asks first.
    """
    from clusterkit.cli.ui.images import ask_first, show_collected
    from clusterkit.commands.images import gc as verb

    settings = load(config)
    agrees = ask_first(dry_run=dry_run, yes=yes)
    with open_ledger(settings, only_reads=dry_run) as ledger:
        show_collected(verb(settings.cluster(cluster), ledger, ended=ended, agrees=agrees))
