"""`clusterkit resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree, at_terminal
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import note, transfer_bar
from clusterkit.config.options import native_words
from clusterkit.project import load, open_ledger
from clusterkit.units import parse_duration, parsed

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.submit.request import Changes


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
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Continue a run that ended too early.

    A run that failed, was cancelled or ran out of time continues from its newest checkpoint, with its
    original code and image. On a terminal it asks first about the runs of a group.

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
        ended = [run for run in ledger.find([name]) if run.state != JobState.COMPLETED]
        asks = len(ended) > 1 and not yes and at_terminal()
        if asks and not agree(f"Continue {len(ended)} runs of {ended[0].group}, which have not completed?"):
            raise typer.Exit(1)
        done = []
        for one in command(settings, request, ledger, name, bar=transfer_bar, say=note):
            show_resumed(one, as_json=as_json)
            done.append(one)
    if as_json:
        print_submitted([one.done for one in done], [resumed_object(one) for one in done])


def changes(
    settings: Settings,
    *,
    profile: str | None,
    cluster: str | None,
    time: str | None,
    total_steps: int | None,
    until_done: bool | None,
    native: list[str] | None,
) -> Changes:
    """Collects the options of `resume` and `rerun` that change a run when it is submitted again.

    Raises:
        ConfigError: the profile or cluster does not exist, or the time is invalid.
    """
    from clusterkit.submit.request import Changes

    return Changes(
        profile=None if profile is None else settings.profile(profile),
        cluster=None if cluster is None else settings.cluster(cluster).name,
        time=None if time is None else parsed("--time", parse_duration, time),
        total_steps=total_steps,
        until_done=until_done,
        native=native_words(native),
    )
