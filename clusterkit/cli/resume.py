"""`clusterkit resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(resume)


def resume(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run id, its beginning, a job id, or `last`.")
    ] = "last",
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Another time limit, e.g. 90m, 4h, 1d12h.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Ask for what this profile asks for."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="Move the run there, and go on there."),
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Train to so many steps.")
    ] = None,
    until_done: Annotated[
        bool | None,
        typer.Option(
            "--until-done/--not-until-done",
            help="Go on past the time limit, in as many attempts as it takes; as before if left out.",
        ),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An sbatch option that wins over all others, e.g. qos=long."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Go on with a run that ended too early.

    One that failed, was cancelled or ran out of time goes on from its newest checkpoint, with the code and
    the image it began with.
    """
    from clusterkit.errors import ConfigError
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.ui.submit import show_resumed
    from clusterkit.units import parse_duration
    from clusterkit.verbs.resubmission import ResumeRequest
    from clusterkit.verbs.resume import resume as verb

    settings = load(config)
    try:
        seconds = None if time is None else parse_duration(time)
    except ValueError as error:
        raise ConfigError(f"--time: {error}") from None
    request = ResumeRequest(
        profile=None if profile is None else settings.profile(profile),
        cluster=None if cluster is None else settings.cluster(cluster).name,
        time=seconds,
        total_steps=total_steps,
        until_done=until_done,
        sbatch=tuple(text if text.startswith("-") else f"--{text}" for text in sbatch or ()),
    )
    with open_ledger(settings) as ledger:
        show_resumed(verb(settings, request, ledger, name, bar=transfer_bar))
