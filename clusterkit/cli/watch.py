"""`clusterkit watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(watch)


def watch(
    name: RunArgument = "last",
    once: Annotated[bool, typer.Option("--once", help="Print the curves once.")] = False,
    config: ConfigOption = None,
) -> None:
    """Draw a run's curves in the terminal, live.

    Success, return and speed, from the metrics it writes, on its cluster or as they were synced; no account
    is needed. Ctrl-C leaves it.
    """
    from clusterkit.ui.console import note
    from clusterkit.ui.curves import is_live, show_live, show_once
    from clusterkit.verbs.curves import curves

    settings = load(config)
    with open_ledger(settings) as ledger:
        run = ledger.find_one(name)
    live = is_live() and not once
    (show_live if live else show_once)(curves(settings, run, follow=live, say=note))
