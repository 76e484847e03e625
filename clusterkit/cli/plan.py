"""`clusterkit plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.submit import ProgramCommand, large_files
from clusterkit.cli.ui.console import note_unread, transfer_bar
from clusterkit.cli.ui.plan import print_json, show_forecast
from clusterkit.config.options import native_words
from clusterkit.errors import ClusterkitError, ConfigError, ImageError
from clusterkit.project import load_project, request_of
from clusterkit.site import log_in_ahead, open_site
from clusterkit.units import parse_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.forecast.planned_run import Forecast
    from clusterkit.forecast.queue import Queue
    from clusterkit.submit.materials import Copies
    from clusterkit.submit.request import SubmitRequest
    from trainer.recipe.spaces import Spaces


COMMAND = ProgramCommand


def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Arguments of the program, as for submit."),
    ] = None,
    profile: options.Profile = None,
    cluster: options.Cluster = None,
    times: Annotated[
        str | None, typer.Option(metavar="TIME,TIME", help="Time limits to try, e.g. 1h,4h,1d.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="GPU,GPU", help="GPU types to try; all types of the cluster if left out."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of GPUs to train on, instead of the profile's."),
    ] = None,
    observation_dim: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Size of an observation, for your own environment."),
    ] = None,
    action_dim: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Size of a continuous action.")
    ] = None,
    action_choices: Annotated[
        str | None, typer.Option(metavar="A,B", help="For discrete actions: number of values of each.")
    ] = None,
    total_steps: options.TotalSteps = None,
    time: options.Time = None,
    nodes: options.Nodes = None,
    until_done: options.UntilDone = None,
    overrides: options.Set = None,
    unlock: options.Unlock = None,
    native: options.Native = None,
    send_large: options.SendLarge = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Estimate what a run needs and when it would start.

    Shows its memory by part, the bytes to upload, the run time, and the start that the scheduler predicts
    for several requests. Changes nothing.

    Examples:
      # memory, run time and start time
      clusterkit plan --profile a40-2m
      # which time limit starts first
      clusterkit plan --profile a40-2m --times 1h,4h,1d

    See also: clusterkit submit, plan.md
    """
    from clusterkit.runs.program import assignments

    settings, run = request_of(
        load_project(config),
        profile=profile,
        cluster=cluster,
        arguments=arguments or (),
        time=time,
        total_steps=total_steps,
        gpus=ranks,
        nodes=nodes,
    )
    if ranks and run.profile.gpu is None:
        raise ConfigError(
            f"--ranks: profile {run.profile.name} asks for no GPU",
            hint="for several processes without a GPU, put `-- --ranks N` after all options",
        )
    run = replace(
        run,
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        native=native_words(native),
        allow_large=large_files(send_large),
        until_done=until_done,
    )
    note_unread(settings, [run.profile])
    spaces = _spaces(observation_dim, action_dim, action_choices)
    forecast = predict(settings, run, spaces, times=_durations(times), gpus=_words(gpus))
    (print_json if as_json else show_forecast)(forecast)


def predict(
    settings: Settings,
    run: SubmitRequest,
    spaces: Spaces | None,
    *,
    times: Sequence[int],
    gpus: Sequence[str],
) -> Forecast:
    """Forecasts one run over one login.

    An unreachable cluster, a missing image or an unresponsive scheduler raises nothing: the rest of the
    forecast holds, and reports the problem.

    Args:
        settings: of the project.
        run: to forecast.
        spaces: the sizes of an environment that is unknown on this machine.
        times: time limits to try, in seconds; empty for the usual ones.
        gpus: GPU types to try; empty for all of the cluster's.

    Raises:
        ConfigError, RecipeLockedError: the request is invalid, as for `submit`.
    """
    from clusterkit.forecast.planned_run import ask_queue, foresee
    from clusterkit.submit.materials import copies
    from clusterkit.submit.pipeline import resolve

    (planned,) = resolve(settings, run).runs
    _check_gpus(run.cluster, gpus)
    with copies(settings) as remembered:
        forecast = foresee(settings, run, spaces, planned)
        try:
            return _with_cluster(settings, forecast, remembered, partial(ask_queue, times=times, gpus=gpus))
        except ConfigError:
            raise
        except ClusterkitError as error:
            return replace(forecast, trouble=error.cause, hint=error.hint or "")


def _with_cluster(
    settings: Settings, forecast: Forecast, remembered: Copies, ask_queue: Callable[..., Queue]
) -> Forecast:
    from clusterkit.commands.deploy import planning

    run = forecast.run
    with log_in_ahead(run.cluster) as login:
        try:
            with planning(
                settings,
                run.cluster,
                remembered.ledger,
                profile=run.profile,
                options=forecast.options,
                login=login,
                bar=transfer_bar,
                cache=remembered.chunks,
                allow_large=run.allow_large,
            ) as (site, upload):
                queue = ask_queue(settings, forecast, site)
                return replace(forecast, upload=upload, queue=queue)
        except ImageError as error:  # the scheduler's answer does not depend on the image
            with open_site(run.cluster, create=False, login=login) as site:
                queue = ask_queue(settings, forecast, site)
                return replace(forecast, queue=queue, trouble=error.cause, hint=error.hint or "")


def _check_gpus(cluster: Cluster, gpus: Sequence[str]) -> None:
    unknown = [gpu for gpu in gpus if gpu not in cluster.gpus]
    if unknown:
        known = ", ".join(cluster.gpus) or "none"
        raise ConfigError(
            f"--gpus: cluster {cluster.name} has no GPU {unknown[0]!r}",
            hint=f"available: {known}; add [clusters.{cluster.name}.gpus.{unknown[0]}] if the cluster has it",
        )


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _spaces(observation: int | None, action: int | None, choices: str | None) -> Spaces | None:
    """Returns the environment's sizes from the options; None if none was given.

    Raises:
        ConfigError: only one of the two sizes was given, or the choices are not numbers.
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
    """Parses time limits into seconds.

    Raises:
        ConfigError: one is invalid or shorter than a minute.
    """
    try:
        seconds = tuple(parse_duration(word) for word in _words(text))
    except ValueError as error:
        raise ConfigError(f"--times: {error}") from None
    if any(each < 60 for each in seconds):
        raise ConfigError("--times: less than a minute is no time limit", hint="write e.g. --times 1h,4h,1d")
    return seconds
