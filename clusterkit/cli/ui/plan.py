"""What a run would take and when it would start, as text and as JSON."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import format_count, note, out, print_document, warn
from clusterkit.cli.ui.deploy import environment_as_json
from clusterkit.cli.ui.lines import labelled
from clusterkit.cli.ui.submit import continuation_values
from clusterkit.config.options import NATIVE
from clusterkit.units import format_bytes, format_duration, format_seconds, plural, significant

if TYPE_CHECKING:
    from clusterkit.backends.jobs import PredictedStart
    from clusterkit.forecast.memory import Store
    from clusterkit.forecast.planned_run import Forecast
    from clusterkit.forecast.queue import Ask, Queue
    from clusterkit.forecast.speed import Duration, Speed
    from clusterkit.submit.materials import DeploymentPlan

_FITS = {"fits": "green", "fallback": "yellow", "too large": "red", "unknown": "yellow"}
_HOUR = 3600
_SMALL = 0.002
"""Parts below this share of the total are combined."""


def show_forecast(forecast: Forecast) -> None:
    """Prints the whole forecast, with the cluster's answers last."""
    out.print(_title(forecast), soft_wrap=True)
    _show_lacking(forecast)
    _show_memory(forecast)
    _show_upload(forecast)
    _show_time(forecast)
    _show_queue(forecast)
    if forecast.trouble:
        warn("not known: ", forecast.trouble)
    if forecast.hint:
        warn("next:  ", forecast.hint, colour="bold")
    note("plan: nothing was changed")


def _show_lacking(forecast: Forecast) -> None:
    """Prints what the machine lacks; what makes the run impossible comes first."""
    name = ""
    for number, one in enumerate(forecast.lacking):
        before, name = name, "never fits" if one.never else "falls short"
        if number == 0:
            out.print()
        labelled("" if name == before else name, str(one), "red" if one.never else "yellow")


def _time_range(duration: Duration, *, here: bool = True) -> str:
    """Formats the expected time and its range; only the range if it was measured on another machine."""
    if not here:
        return f"{format_seconds(duration.shortest)} to {format_seconds(duration.longest)}: not measured here"
    middle = format_seconds(duration.seconds)
    low, high = format_seconds(duration.shortest), format_seconds(duration.longest)
    return f"about {middle}" if low == middle == high else f"about {middle} ({low} to {high})"


def _speed_words(speed: Speed) -> str:
    """Formats the steps per second and their source."""
    caveats = "".join(f"; {caveat}" for caveat in speed.caveats)
    return f"{significant(speed.steps_per_second)} steps/s, {speed.source}{caveats}"


def _title(forecast: Forecast) -> Text:
    profile, sizes, machine = forecast.profile, forecast.sizes, forecast.machine
    asks = [
        f"{profile.gpu_count} {profile.gpu}" if profile.gpu else "no GPU",
        plural(machine.processors, "CPU"),
        f"{format_bytes(machine.host_memory)} memory" if machine.host_memory else "",
        f"{format_duration(profile.time)}{' at a time' if forecast.goes_on else ''}",
    ]
    text = Text.assemble((profile.name, "bold"), " on ", (forecast.cluster.name, "bold"))
    nodes = f"{profile.nodes} nodes, each with " if profile.nodes > 1 else ""
    text.append(f": {nodes}{', '.join(filter(None, asks))}")
    if sizes:
        modified = " (modified)" if sizes.recipe.modified else ""
        steps = f", {format_count(forecast.total_steps)} steps" if forecast.total_steps else ""
        text.append(
            f"\n{sizes.recipe.name}{modified}{steps}, {plural(sizes.environments, 'environment')}, ", "dim"
        )
        text.append(sizes.precision, "dim")
        if sizes.ranks > 1:
            own = f"{plural(sizes.own_environments, 'environment')}, {sizes.own_batch:,} of a batch"
            text.append(f", {sizes.ranks} ranks of {own}", "dim")
    return text


def _show_memory(forecast: Forecast) -> None:
    memory = forecast.memory
    if memory is None:
        why = f": {forecast.sizes.unknown}" if forecast.sizes else " for your own program"
        labelled("memory", f"not predicted{why}")
        return
    if memory.gpu:
        ranks = forecast.sizes.ranks if forecast.sizes else 1
        each = f", each of {ranks}" if ranks > 1 else ""
        elsewhere = ", on another machine" if any(one.never for one in forecast.lacking) else ""
        _show_store(f"GPU memory, {forecast.profile.gpu or 'cuda'}{each}{elsewhere}", memory.gpu)
    _show_store("node memory", memory.host)
    if (used := forecast.used) is not None:
        seen = [f"{format_bytes(used.gpu_memory)} of the GPU" if used.gpu_memory else ""]
        seen += [f"{format_bytes(used.memory)} of the node" if used.memory else ""]
        labelled("seen", f"your run {used.rate.source} used at most {', '.join(filter(None, seen))}")


def _show_store(title: str, store: Store) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    small = [part for part in store.parts if part.exact and part.bytes < _SMALL * store.needed]
    for part in store.parts:
        if part not in small:
            amount = f"{'' if part.exact else '~ '}{format_bytes(part.bytes)}"
            table.add_row(f"  {part.name}", amount, part.note)
    if small:
        names = ", ".join(part.name for part in small)
        table.add_row("  small parts", format_bytes(sum(part.bytes for part in small)), names)
    whole = Text(format_bytes(store.needed), style="bold")
    table.add_row(Text("  total", style="bold"), whole, _verdict(store))
    out.print()
    out.print(Text(title, style="bold"))
    out.print(table)
    if store.advice:
        out.print(Text(f"  {store.advice}"), soft_wrap=True)


def _verdict(store: Store) -> Text:
    words = Text(str(store.fit), style=_FITS[store.fit])
    if store.available is not None:
        usable = format_bytes(store.available - store.reserve)
        words.append(f": {usable} of {format_bytes(store.available)} usable", "dim")
    return words


def _show_upload(forecast: Forecast) -> None:
    out.print()
    upload = forecast.upload
    if upload is None:
        labelled("upload", "not known")
        return
    words = []
    for what, plan in (("image", upload.image_plan), ("code", upload.standing)):
        if what == "code" or upload.image:
            state = "already there" if plan.present else format_bytes(plan.bytes_to_send)
            words.append(f"{what} {state}")
    text = ", ".join(words)
    if upload.bytes_to_send and upload.seconds is not None:
        text += f"; about {format_seconds(max(1, upload.seconds))}"
    if upload.bytes_to_send and upload.rate:
        since = f"as on {upload.rate.measured}" if upload.rate.measured else "measured now"
        text += f" at {format_bytes(upload.rate.bytes_per_second)}/s, {since}"
    if not upload.image_plan.present:
        text += f" (`clusterkit deploy --cluster {upload.cluster}`)"
    labelled("upload", text)
    if upload.environment:
        state = (
            f"is there, {format_bytes(max(upload.built))}" if upload.built else "is built by the first job"
        )
        packages = plural(upload.environment.packages, "package")
        labelled("packages", f"the environment of {upload.environment.file} ({packages}) {state}")
    if upload.shortage:
        labelled("", f"does not fit: {upload.shortage}", "red")


def _show_time(forecast: Forecast) -> None:
    speed, duration, profile = forecast.speed, forecast.duration, forecast.profile
    if forecast.sizes is None:
        return
    if speed is None:
        where = f"on {profile.gpu}" if profile.gpu else "without a GPU"
        labelled("time", f"not measured {where}; a short run will tell, once its results are synced")
    else:
        if duration:
            labelled(
                "time",
                _time_range(duration, here=speed.here)
                + ("" if profile.gpu is None else _gpu_hours(duration)),
            )
        labelled("" if duration else "time", _speed_words(speed))
    for rate in forecast.elsewhere[:2]:
        other = "" if rate.same_work else ", of other work"
        place = rate.gpu or "no GPU"
        labelled(
            "",
            f"elsewhere: {significant(rate.steps_per_second)} steps/s on {place}, by {rate.by}{other}",
            "dim",
        )
    if duration:
        _show_attempts(forecast, duration)


def _gpu_hours(duration: Duration) -> str:
    return f", {duration.gpu_seconds / _HOUR:,.1f} GPU-hours"


def _show_attempts(forecast: Forecast, duration: Duration) -> None:
    limit = format_duration(forecast.profile.time)
    if duration.attempts > 1:
        attempts = f"up to {duration.attempts} of {limit}"
        if forecast.goes_on:
            labelled("attempts", attempts)
        else:
            words = f"may not end within {limit}: --until-done continues past it, in {attempts}"
            labelled("attempts", words, "yellow")
    if duration.checkpoints and forecast.profile.checkpoint_every:
        apart = format_seconds(duration.seconds / duration.checkpoints)
        labelled(
            "checkpoints",
            f"{duration.checkpoints}, one about every {apart}; an interruption loses at most that much",
        )


def _show_queue(forecast: Forecast) -> None:
    queue = forecast.queue
    if queue.starts and not queue.refused:
        out.print()
        out.print(_starts(forecast, queue))
    if queue.trouble:
        labelled("start", f"not known: {queue.trouble}", "yellow")
        if queue.hint:
            labelled("next", queue.hint)
    if queue.advice:
        labelled("advice", queue.advice.text, "bold")
    if queue.continuation:
        labelled("goes on", f"by {queue.continuation.way}: {queue.continuation.why}")
    for share in queue.shares:
        parts = [f"factor {share.factor:.2f} of 1" if share.factor is not None else ""]
        parts += [f"{share.used:.1%} of the recent use" if share.used is not None else ""]
        labelled("fair share", f"{share.account}: {', '.join(filter(None, parts)) or 'not known'}")
    if queue.billing is not None:
        hours = forecast.duration.seconds / _HOUR if forecast.duration else None
        whole = "" if hours is None else f", {queue.billing * hours:,.0f} in all"
        labelled("billing", f"{queue.billing:,.1f} units an hour{whole}")


def _starts(forecast: Forecast, queue: Queue) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    waits = any(start.waiting for start in queue.starts.values())
    named = any(start.partition for start in queue.starts.values())
    more = [*(["partition"] if named else []), *(["jobs waiting"] if waits else [])]
    for title in ("gpu", "time limit", "starts", *more):
        table.add_column(title, no_wrap=title != "starts", overflow="fold")
    own = forecast.profile.gpu or "", forecast.profile.time
    for ask, start in queue.starts.items():
        mark = " *" if (ask.gpu, ask.seconds) == own else ""
        table.add_row(
            ask.gpu or "-",
            f"{format_duration(ask.seconds)}{mark}",
            _when(start),
            *([Text(start.partition or "")] if named else []),
            *([str(start.waiting or "")] if waits else []),
        )
    return table


def _when(start: PredictedStart) -> Text:
    if start.wait is None:
        return Text(start.words or "not known", style="yellow")
    if start.at_once:
        return Text("now", style="green")
    now = time.time()
    there = datetime.fromtimestamp(now + start.wait).astimezone()
    days = (there.date() - datetime.fromtimestamp(now).astimezone().date()) // timedelta(days=1)
    day = {0: "", 1: "tomorrow "}.get(days, f"{there:%a %d %b} ")
    bound = "at the latest " if start.waiting else ""
    return Text(f"{bound}{day}{there:%H:%M}, in {format_seconds(start.wait)}")


def print_json(forecast: Forecast) -> None:
    """Prints the same as JSON; docs/plan.md lists the keys."""
    sizes, queue, profile = forecast.sizes, forecast.queue, forecast.profile
    used, speed, duration = forecast.used, forecast.speed, forecast.duration
    document = {
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
        and {"gpu": _store_values(forecast.memory.gpu), "host": _store_values(forecast.memory.host)},
        "seen": used and {"run_id": used.rate.source, "memory": used.memory, "gpu_memory": used.gpu_memory},
        "time": speed and {**asdict(speed), "duration": duration and asdict(duration)},
        "elsewhere": [asdict(rate) for rate in forecast.elsewhere],
        "upload": forecast.upload and _upload(forecast.upload),
        "starts": [_start(ask, start) for ask, start in queue.starts.items()],
        "advice": queue.advice
        and {
            "text": queue.advice.text,
            "ask": queue.advice.ask and _ask(queue.advice.ask),
            "sooner_seconds": queue.advice.sooner,
        },
        "goes_on": continuation_values(queue.continuation),
        "shares": [asdict(share) for share in queue.shares],
        "billing_per_hour": queue.billing,
        "lacking": [{"text": str(one), "never": one.never} for one in forecast.lacking],
        "trouble": [words for words in (forecast.trouble, queue.trouble) if words],
    }
    print_document(document)


def _store_values(store: Store | None) -> dict[str, Any] | None:
    return None if store is None else {**asdict(store), "needed": store.needed}


def _start(request: Ask, start: PredictedStart) -> dict[str, Any]:
    when = {"wait_seconds": start.wait, "start": start.moment}
    where = {"partition": start.partition, "waiting": start.waiting}
    return {**_ask(request), **when, **where, "why": start.words or None}


def _ask(request: Ask) -> dict[str, Any]:
    return {"gpu": request.gpu or None, "time_limit_seconds": request.seconds}


def _upload(upload: DeploymentPlan) -> dict[str, Any]:
    return {
        "image_bytes": upload.image_plan.bytes_to_send,
        "image_way": upload.image_plan.way if upload.image else None,
        "code_bytes": upload.standing.bytes_to_send,
        "code_files": len(upload.standing.missing),
        "bytes": upload.bytes_to_send,
        "seconds": upload.seconds,
        "rate": upload.rate and asdict(upload.rate),
        "shortage": upload.shortage,
        "environment": environment_as_json(upload),
    }
