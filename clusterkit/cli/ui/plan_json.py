"""A forecast for machines; docs/plan.md lists the keys."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clusterkit.cli.ui.console import out

if TYPE_CHECKING:
    from clusterkit.commands.plan import Forecast
    from clusterkit.forecast.memory import Store
    from clusterkit.forecast.speed import Duration, Speed
    from clusterkit.forecast.starts import Ask, Start
    from clusterkit.runs.deployment import Plan as Upload


def print_forecast_json(forecast: Forecast) -> None:
    """One document on standard output."""
    out.file.write(json.dumps(_document(forecast), ensure_ascii=False) + "\n")


def store_json(store: Store | None) -> dict[str, Any] | None:
    """One memory."""
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
    """Speed and time."""
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
        "sbatch": list(forecast.options),
        "memory": forecast.memory
        and {"gpu": store_json(forecast.memory.gpu), "host": store_json(forecast.memory.host)},
        "seen": forecast.used and asdict(forecast.used),
        "time": time_json(forecast.speed, forecast.duration),
        "elsewhere": [asdict(rate) for rate in forecast.elsewhere],
        "upload": _upload(forecast.upload),
        "starts": [_start(start) for start in queue.starts],
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


def _start(start: Start) -> dict[str, Any]:
    when = {"wait_seconds": start.wait, "start": start.moment}
    where = {"partition": start.partition, "waiting": start.waiting}
    return {**_ask(start.ask), **when, **where, "why": start.trouble}


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
