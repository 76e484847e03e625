"""`clusterkit plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    ProfileOption,
    ProgramCommand,
    SbatchOption,
    SendLargeOption,
    SetOption,
    TimeOption,
    TotalStepsOption,
    UnlockOption,
    UntilDoneOption,
    asking_for,
    large_files,
    load,
    sbatch_words,
)
from clusterkit.errors import ConfigError

if TYPE_CHECKING:
    from trainer.recipe.spaces import Spaces


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command(cls=ProgramCommand)(plan)


def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Of the program, as for submit."),
    ] = None,
    profile: ProfileOption = None,
    cluster: ClusterOption = None,
    times: Annotated[
        str | None, typer.Option(metavar="TIME,TIME", help="Time limits to try, e.g. 1h,4h,1d.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="GPU,GPU", help="GPU types to try; all of the cluster if left out.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="The profile on every GPU type of every cluster; asks none.")
    ] = False,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="GPUs to learn on, instead of the profile's.")
    ] = None,
    observation_dim: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Numbers in an observation of an environment of your own."),
    ] = None,
    action_dim: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Numbers in an action of it.")
    ] = None,
    action_choices: Annotated[
        str | None, typer.Option(metavar="A,B", help="Instead: how many each choice of an action has.")
    ] = None,
    total_steps: TotalStepsOption = None,
    time: TimeOption = None,
    until_done: UntilDoneOption = None,
    overrides: SetOption = None,
    unlock: UnlockOption = None,
    sbatch: SbatchOption = None,
    send_large: SendLargeOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Say what a run would take and when it would start.

    Memory by part, bytes to upload, time, and the scheduler's predicted start for several requests. Nothing
    is changed.
    """
    from clusterkit.runs.program import assignments
    from clusterkit.runs.request import SubmitRequest

    settings = load(config)
    chosen = settings.profile(profile).name
    settings = asking_for(settings, [chosen], time=time, total_steps=total_steps, gpus=ranks)
    if ranks and settings.profile(chosen).gpu is None:
        raise ConfigError(
            f"--ranks: profile {chosen} asks for no GPU",
            hint="processes that share a machine without one: `-- --ranks N` after all options",
        )
    spaces = _spaces(observation_dim, action_dim, action_choices)
    run = SubmitRequest(
        cluster=settings.cluster(cluster),
        profile=settings.profile(chosen),
        arguments=tuple(arguments or ()),
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        native=sbatch_words(sbatch),
        allow_large=large_files(send_large),
        until_done=until_done,
    )
    if compare:
        from clusterkit.cli.ui.compare import print_comparison_json, show_comparison
        from clusterkit.commands.compare import compare as compared

        rows = compared(settings, run, cluster=cluster, spaces=spaces)
        (print_comparison_json if as_json else show_comparison)(run.profile, rows)
        return

    from clusterkit.cli.ui.plan import show_forecast
    from clusterkit.cli.ui.plan_json import print_forecast_json
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.commands.plan import PlanRequest
    from clusterkit.commands.plan import plan as verb

    request = PlanRequest(run, _durations(times), tuple(_words(gpus)), spaces)
    forecast = verb(settings, request, bar=transfer_bar)
    (print_forecast_json if as_json else show_forecast)(forecast)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _spaces(observation: int | None, action: int | None, choices: str | None) -> Spaces | None:
    """Sizes of an environment that the user names; None where nothing is said.

    Raises:
        ConfigError: half of it is said, or the choices are no numbers.
    """
    from trainer.recipe.spaces import Spaces

    if observation is None and action is None and choices is None:
        return None
    if observation is None or (action is None) == (choices is None):
        raise ConfigError(
            "--observation-dim goes with --action-dim, or with --action-choices where actions are discrete",
            hint="e.g. --observation-dim 24 --action-dim 4, or --observation-dim 8 --action-choices 4",
        )
    words = _words(choices)
    if not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(
            f"--action-choices {choices}: not whole numbers of at least 1", hint="write e.g. 4, or 3,3,2"
        )
    counts = tuple(map(int, words))
    return Spaces(observation, action or len(counts), counts)


def _durations(text: str | None) -> tuple[int, ...]:
    """Seconds of each time limit.

    Raises:
        ConfigError: one is none.
    """
    from clusterkit.units import parse_duration

    try:
        seconds = tuple(parse_duration(word) for word in _words(text))
    except ValueError as error:
        raise ConfigError(f"--times: {error}") from None
    if any(each < 60 for each in seconds):
        raise ConfigError("--times: less than a minute is no time limit", hint="write e.g. --times 1h,4h,1d")
    return seconds
