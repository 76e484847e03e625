"""`clusterkit resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.common import changes, load, open_ledger
from clusterkit.cli.ui.console import note, transfer_bar


def resume(
    name: options.RunOrGroup = "last",
    time: options.OtherTime = None,
    profile: options.OtherProfile = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="NAME", help="Move the run to this cluster and continue there."
        ),
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="New total number of environment steps.")
    ] = None,
    until_done: options.UntilDoneAsBefore = None,
    native: options.Native = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Continue a run that ended too early.

    A run that failed, was cancelled or ran out of time continues from its newest checkpoint, with its
    original code and image.

    Examples:
      clusterkit resume last                  # from its newest checkpoint
      clusterkit resume last --time 12h       # with more time
      clusterkit resume last --cluster other  # move it to another cluster

    See also: clusterkit rerun, clusterkit why, until-done.md
    """
    from clusterkit.cli.ui.submit import print_submitted, resumed_object, show_resumed
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
        done = []
        for one in command(settings, request, ledger, name, bar=transfer_bar, say=note):
            show_resumed(one, as_json=as_json)
            done.append(one)
    if as_json:
        print_submitted([one.done for one in done], [resumed_object(one) for one in done])
