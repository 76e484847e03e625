"""`clusterkit drill`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ClusterOption, ConfigOption, load, open_ledger, seconds_of


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(drill)


def drill(
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Whose resources and signal to rehearse."),
    ] = None,
    cluster: ClusterOption = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="Of an attempt: more where a program is slow to start."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Rehearse how a run goes on past its time limit.

    A real job of two minutes, or of --time, is signalled, checkpoints, goes on and is checked. Ends with 1 if
    a step failed.
    """
    from clusterkit.cli.ui.drill import Told, show_drilled
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.drill import drill as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        done = verb(
            settings,
            ledger,
            settings.cluster(cluster),
            settings.profile(profile),
            seconds_of(time),
            bar=transfer_bar,
            on_submit=show_submitted,
            on_row=Told(),
        )
    show_drilled(done)
    if not done.passed:
        raise typer.Exit(1)
