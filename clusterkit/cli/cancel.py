"""`clusterkit cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunsArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(cancel)


def cancel(
    names: RunsArgument = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="All runs of a group, of a sweep for example."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All runs of this project that may still run.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="With --all: only those of this cluster."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """End runs; what they have written stays.

    On a terminal it asks first, where several runs or a running one would end.
    """
    from clusterkit.cli.ui.cancel import ask_first, show_cancelled
    from clusterkit.commands.cancel import Chosen
    from clusterkit.commands.cancel import cancel as verb

    settings = load(config)
    chosen = Chosen(tuple(names or ()), group=group, everything=everything, cluster=cluster)
    with open_ledger(settings, of=names or ()) as ledger:
        code = show_cancelled(verb(settings, ledger, chosen, agrees=ask_first(chosen, yes=yes)))
    raise typer.Exit(code)
