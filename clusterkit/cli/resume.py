"""`clusterkit resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    NativeOption,
    OtherProfileOption,
    OtherTimeOption,
    RunOrGroupArgument,
    UntilDoneAsBeforeOption,
    changes,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import note
from clusterkit.cli.ui.progress import transfer_bar


def resume(
    name: RunOrGroupArgument = "last",
    time: OtherTimeOption = None,
    profile: OtherProfileOption = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="Move the run there, and go on there."),
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Train to so many steps.")
    ] = None,
    until_done: UntilDoneAsBeforeOption = None,
    native: NativeOption = None,
    config: ConfigOption = None,
) -> None:
    """Continue a run that ended too early.

    One that failed, was cancelled or ran out of time goes on from its newest checkpoint, with the code and
    the image it began with.
    """
    from clusterkit.cli.ui.submit import show_resumed
    from clusterkit.commands.resume import resume as command

    settings = load(config)
    request = changes(
        settings,
        profile=profile,
        cluster=cluster,
        time=time,
        total_steps=total_steps,
        until_done=until_done,
        native=native,
    )
    with open_ledger(settings, of=[name]) as ledger:
        for done in command(settings, request, ledger, name, bar=transfer_bar, say=note):
            show_resumed(done)
