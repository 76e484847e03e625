"""`clusterkit why`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(why)


def why(
    name: RunArgument = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Say why a run waits, failed or is silent.

    One cause, the lines that show it, and the one command to run next.
    """
    from clusterkit.ui.why import print_json, show_diagnosis
    from clusterkit.verbs.why import why as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        diagnosis = verb(settings, ledger, name)
    (print_json if as_json else show_diagnosis)(diagnosis)
