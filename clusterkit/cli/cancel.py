"""`clusterkit cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(cancel)


def cancel(
    names: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run ids, beginnings, job ids, or `last`.")
    ],
    config: ConfigOption = None,
) -> None:
    """End runs; what they have written stays."""
    from clusterkit.ui.status import show_cancelled
    from clusterkit.verbs.cancel import cancel as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        show_cancelled(verb(settings, ledger, names))
