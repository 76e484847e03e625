"""`clusterkit plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    NativeOption,
    NodesOption,
    ProfileOption,
    ProgramCommand,
    SendLargeOption,
    SetOption,
    TimeOption,
    TotalStepsOption,
    UnlockOption,
    UntilDoneOption,
    asking_for,
    chosen_profile,
    large_files,
    load_project,
    native_words,
)
from clusterkit.cli.ui.console import print_document
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.config.options import NATIVE
from clusterkit.errors import ConfigError
from clusterkit.units import parse_duration

if TYPE_CHECKING:
    from clusterkit.backends.starts import PredictedStart
    from clusterkit.commands.plan import Forecast
    from clusterkit.forecast.memory import Store
    from clusterkit.forecast.own_rates import OwnRun
    from clusterkit.forecast.speed import Duration, Speed
    from clusterkit.forecast.starts import Ask
    from clusterkit.submit.deployment import DeploymentPlan as Upload
    from trainer.recipe.spaces import Spaces


COMMAND = ProgramCommand


def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Arguments of the program, as for submit."),
    ] = None,
    profile: ProfileOption = None,
    cluster: ClusterOption = None,
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
    total_steps: TotalStepsOption = None,
    time: TimeOption = None,
    nodes: NodesOption = None,
    until_done: UntilDoneOption = None,
    overrides: SetOption = None,
    unlock: UnlockOption = None,
    native: NativeOption = None,
    send_large: SendLargeOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Estimate what a run needs and when it would start.

    Shows its memory by part, the bytes to upload, the run time, and the start that the scheduler predicts
    for several requests. Changes nothing.
    """
    from clusterkit.runs.program import assignments
    from clusterkit.submit.request import SubmitRequest

    settings = load_project(config)
    chosen = chosen_profile(settings, profile, arguments)
    settings = asking_for(settings, [chosen], time=time, total_steps=total_steps, gpus=ranks, nodes=nodes)
    if ranks and settings.profile(chosen).gpu is None:
        raise ConfigError(
            f"--ranks: profile {chosen} asks for no GPU",
            hint="for several processes without a GPU, put `-- --ranks N` after all options",
        )
    spaces = _spaces(observation_dim, action_dim, action_choices)
    run = SubmitRequest(
        cluster=settings.cluster(cluster),
        profile=settings.profile(chosen),
        arguments=tuple(arguments or ()),
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        native=native_words(native),
        allow_large=large_files(send_large),
        until_done=until_done,
    )
    from clusterkit.cli.ui.plan import show_forecast
    from clusterkit.commands.plan import PlanRequest
    from clusterkit.commands.plan import plan as command

    request = PlanRequest(run, _durations(times), tuple(_words(gpus)), spaces)
    forecast = command(settings, request, bar=transfer_bar)
    if as_json:
        print_document(_document(forecast))
    else:
        show_forecast(forecast)


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


def store_json(store: Store | None) -> dict[str, Any] | None:
    """Converts the figures of one memory (GPU or host) to plain values."""
    return (
        None
        if store is None
        else {
            "parts": [asdict(part) for part in store.parts],
            "needed": store.needed,
            "available": store.available,
            "reserve": store.reserve,
            "fit": store.fit,
            "advice": store.advice,
        }
    )


def time_json(speed: Speed | None, duration: Duration | None) -> dict[str, Any] | None:
    """Converts speed and duration to plain values."""
    return None if speed is None else {**asdict(speed), "duration": duration and asdict(duration)}


def _document(forecast: Forecast) -> dict[str, Any]:
    sizes, queue, profile = forecast.sizes, forecast.queue, forecast.profile
    return {
        "schema": 1,
        "cluster": forecast.cluster.name,
        "profile": profile.name,
        "recipe": sizes and sizes.recipe.name,
        "modified": sizes and sizes.recipe.as_json()["modified"],
        "total_steps": forecast.total_steps,
        "num_envs": sizes and sizes.environments,
        "precision": sizes and sizes.precision,
        "ranks": sizes and sizes.ranks,
        "gpu": profile.gpu,
        "gpus": profile.gpu_count,
        "cpus": forecast.machine.processors,
        "memory_bytes": forecast.machine.host_memory,
        "time_limit_seconds": profile.time,
        "until_done": forecast.goes_on,
        NATIVE: list(forecast.options),
        "memory": forecast.memory
        and {"gpu": store_json(forecast.memory.gpu), "host": store_json(forecast.memory.host)},
        "seen": forecast.used and _seen(forecast.used),
        "time": time_json(forecast.speed, forecast.duration),
        "elsewhere": [asdict(rate) for rate in forecast.elsewhere],
        "upload": _upload(forecast.upload),
        "starts": [_start(ask, start) for ask, start in queue.starts.items()],
        "advice": queue.advice
        and {
            "text": queue.advice.text,
            "ask": queue.advice.ask and _ask(queue.advice.ask),
            "sooner_seconds": queue.advice.sooner,
        },
        "goes_on": queue.continuation and {"way": queue.continuation.way, "why": queue.continuation.why},
        "shares": [asdict(share) for share in queue.shares],
        "billing_per_hour": queue.billing,
        "lacking": [{"text": str(one), "never": one.never} for one in forecast.lacking],
        "trouble": [words for words in (forecast.trouble, queue.trouble) if words],
    }


def _seen(used: OwnRun) -> dict[str, Any]:
    return {"run_id": used.rate.source, "memory": used.memory, "gpu_memory": used.gpu_memory}


def _start(ask: Ask, start: PredictedStart) -> dict[str, Any]:
    when = {"wait_seconds": start.wait, "start": start.moment}
    where = {"partition": start.partition, "waiting": start.waiting}
    return {**_ask(ask), **when, **where, "why": start.words or None}


def _ask(ask: Ask) -> dict[str, Any]:
    return {"gpu": ask.gpu or None, "time_limit_seconds": ask.seconds}


def _upload(upload: Upload | None) -> dict[str, Any] | None:
    return (
        None
        if upload is None
        else {
            "image_bytes": upload.image_plan.bytes_to_send,
            "image_way": upload.image_plan.way if upload.image else None,
            "code_bytes": upload.standing.bytes_to_send,
            "code_files": len(upload.standing.missing),
            "bytes": upload.bytes_to_send,
            "seconds": upload.seconds,
            "rate": upload.rate and asdict(upload.rate),
            "shortage": upload.shortage,
        }
    )
