"""`clusterkit resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    JsonOption,
    NativeOption,
    OtherProfileOption,
    OtherTimeOption,
    RunArgument,
    UntilDoneAsBeforeOption,
    changes,
    load,
    open_ledger,
)
from clusterkit.cli.ui.progress import transfer_bar


def resume(
    name: RunArgument = "last",
    time: OtherTimeOption = None,
    profile: OtherProfileOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="NAME", help="Move the run to this cluster and continue there."
        ),
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="New total number of environment steps.")
    ] = None,
    until_done: UntilDoneAsBeforeOption = None,
    native: NativeOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Continue a run that ended too early.

    A run that failed, was cancelled or ran out of time continues from its newest checkpoint, with its
    original code and image.
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
        show_resumed(command(settings, request, ledger, name, bar=transfer_bar), as_json=as_json)
