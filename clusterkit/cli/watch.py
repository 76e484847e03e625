"""`clusterkit watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunOrGroupArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(watch)


def watch(
    name: RunOrGroupArgument = "last",
    once: Annotated[bool, typer.Option("--once", help="Print the curves once.")] = False,
    config: ConfigOption = None,
) -> None:
    """Draw the curves of a run or group in the terminal, live.

    Success, return and speed, from the metrics it writes, on its cluster or as they were synced; no account
    is needed. Ctrl-C leaves it.
    """
    from clusterkit.cli.ui.console import note
    from clusterkit.cli.ui.curves import is_live, show_live, show_once, view
    from clusterkit.commands.watch import curves

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
    live = is_live() and not once
    if len(runs) > 1:
        from clusterkit.cli.ui.group_curves import view_group
        from clusterkit.commands.watch import group_curves

        looks = group_curves(settings, runs, follow=live, say=note)
        (show_live if live else show_once)(looks, view_group)
    else:
        (show_live if live else show_once)(curves(settings, runs[0], follow=live, say=note), view)
