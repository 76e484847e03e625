"""`clusterkit submit`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ClusterOption, ConfigOption, SendLargeOption, large_files, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command(context_settings={"allow_interspersed_args": True})(submit)


def submit(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Passed to the program, to the letter."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="What to ask for: `clusterkit profiles` lists them.")
    ] = None,
    cluster: ClusterOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the profile's name if left out.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the run.")] = None,
    total_steps: Annotated[int | None, typer.Option(min=1, help="Environment steps over all tasks.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit, e.g. 90m, 4h, 1d12h.")] = None,
    until_done: Annotated[
        bool | None,
        typer.Option(
            "--until-done/--not-until-done",
            help="Go on past the time limit, in as many attempts as it takes.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a recipe value.")
    ] = None,
    unlock: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Let a locked recipe value change; marks the run as modified."),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An sbatch option that wins over all others, e.g. qos=long."),
    ] = None,
    verify_image: Annotated[
        bool, typer.Option("--verify-image", help="Let the job check its image's digest before it starts.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print script, argv and what would be sent; change nothing.")
    ] = False,
    send_large: SendLargeOption = False,
    config: ConfigOption = None,
) -> None:
    """Submit a run; print its run id.

    The run is rendered from a profile and checked before anything is sent.
    """
    from clusterkit.config.lines import join_key
    from clusterkit.plan import assignments
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.ui.submit import show_dry_run, show_submitted
    from clusterkit.verbs import submit as verb

    settings = load(config)
    chosen = settings.profile(profile).name
    given = {("profiles", chosen, "time"): time, ("profiles", chosen, "total_steps"): total_steps}
    settings = settings.with_values({join_key(key): value for key, value in given.items() if value})
    request = verb.Request(
        cluster=settings.cluster(cluster),
        profile=settings.profile(chosen),
        name=name,
        seed=seed,
        arguments=tuple(arguments or ()),
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        sbatch=tuple(text if text.startswith("-") else f"--{text}" for text in sbatch or ()),
        verify_image=verify_image,
        allow_large=large_files(send_large),
        until_done=until_done,
    )
    with open_ledger(settings) as ledger:
        if dry_run:
            show_dry_run(verb.dry_run(settings, request, ledger, bar=transfer_bar))
        else:
            show_submitted(verb.submit(settings, request, ledger, bar=transfer_bar))
