"""`clusterkit plan`."""

from __future__ import annotations

from typing import Annotated

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
    from clusterkit.plan import assignments
    from clusterkit.verbs.prepare import Request

    settings = load(config)
    chosen = settings.profile(profile).name
    settings = asking_for(settings, [chosen], time=time, total_steps=total_steps)
    run = Request(
        cluster=settings.cluster(cluster),
        profile=settings.profile(chosen),
        arguments=tuple(arguments or ()),
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        sbatch=sbatch_words(sbatch),
        allow_large=large_files(send_large),
        until_done=until_done,
    )
    if compare:
        from clusterkit.ui.compare import print_comparison_json, show_comparison
        from clusterkit.verbs.compare import compare as compared

        rows = compared(settings, run, cluster=cluster)
        (print_comparison_json if as_json else show_comparison)(run.profile, rows)
        return

    from clusterkit.ui.plan import show_forecast
    from clusterkit.ui.plan_json import print_forecast_json
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.verbs.plan import PlanRequest
    from clusterkit.verbs.plan import plan as verb

    request = PlanRequest(run, _durations(times), tuple(_words(gpus)))
    forecast = verb(settings, request, bar=transfer_bar)
    (print_forecast_json if as_json else show_forecast)(forecast)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


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
