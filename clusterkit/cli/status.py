"""`clusterkit status`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunsArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(status)


def status(
    names: RunsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Also runs that ended long ago.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show where runs stand.

    State, progress, time left, and why one waits or failed.
    """
    from clusterkit.ui.status import print_json, show_status
    from clusterkit.verbs.status import status as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        report = verb(settings, ledger, names=names or (), everything=everything)
    (print_json if as_json else show_status)(report)
