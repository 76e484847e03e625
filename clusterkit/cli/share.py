"""`clusterkit diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(diff)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, or a folder with one.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show what differs between two runs.

    Recipe, profile, arguments, code, image, versions and results; of runs that were not synced all but the
    results.
    """
    from clusterkit.ui.diff import print_json, show_diff
    from clusterkit.verbs.diff import diff as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        comparison = verb(settings, ledger, a, b)
    (print_json if as_json else show_diff)(comparison)
