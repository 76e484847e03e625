"""`clusterkit top`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusterkit.backends.base import backend_of
from clusterkit.cli import options
from clusterkit.cli.ui.console import format_count, note, out, print_document
from clusterkit.cli.ui.lines import plain_table, share_bar
from clusterkit.errors import RunError, TransportError
from clusterkit.probes.usage import Usage, UsageReader, usage_argv
from clusterkit.project import load, open_ledger
from clusterkit.runs.names import label
from clusterkit.runs.outlook import time_left
from clusterkit.transport.faults import LostError
from clusterkit.units import format_bytes, format_seconds, percent, significant

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clusterkit.config.settings import Settings
    from clusterkit.interactive.inside import Inside
    from clusterkit.probes.usage import Gpu
    from clusterkit.runs.ledger import LedgerRun

    Samples = Generator[tuple[Inside, Usage], None, None]


def top(
    name: options.RunOrGroup = "last",
    once: Annotated[bool, typer.Option("--once", help="Print the usage once and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts, one object per line.")
    ] = False,
    config: options.Config = None,
) -> None:
    """Show the live resource usage of a run or group.

    GPUs, processors, memory and processes, measured inside its job. Ctrl-C exits.

    Examples:
      clusterkit top last
      clusterkit top last --once
      clusterkit top last --json  # one object per line

    See also: clusterkit shell, report.md
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
    once = once or not (as_json or out.is_terminal)
    show = print_json if as_json else show_once if once else show_live
    show(sample(settings, runs, once=once))


SECONDS = 2.0
"""Seconds between two samples."""
_ONCE_SECONDS = 1.0


def sample(
    settings: Settings, runs: Sequence[LedgerRun], *, once: bool
) -> Generator[tuple[Inside, Usage], None, None]:
    """Samples what running runs use, until all have ended, over one connection to each cluster.

    A single run is sampled every two seconds by one job step; closing the iterator or ending this process
    ends the step. Several runs take turns, and each sample is a job step of its own.

    Args:
        settings: of the project.
        runs: a running run, or a group.
        once: take a single sample of each.

    Raises:
        RunError: none of the runs is running, or nothing can be started in a job.
        TransportError: a cluster cannot be reached, or a connection was lost.
    """
    from clusterkit.interactive.inside import inside, inside_all

    if len(runs) == 1:
        with inside(settings, runs[0]) as place:
            yield from _samples(settings, place, once=once)
        return
    with inside_all(settings, runs) as places:
        going = list(places)
        while going:
            for place in list(going):
                sampled = False
                for sample in _samples(settings, place, once=True):
                    sampled = True
                    yield sample
                if not sampled:
                    going.remove(place)  # it has ended
            if once:
                return


def _samples(settings: Settings, place: Inside, *, once: bool) -> Generator[tuple[Inside, Usage], None, None]:
    backend = backend_of(place.cluster)
    profile = settings.profiles.get(place.run.profile)
    gpu_asked = profile is None or profile.gpu_count > 0
    sampler = usage_argv(
        place.run.run_dir,
        place.attempt,
        seconds=_ONCE_SECONDS if once else SECONDS,
        count=2 if once else None,  # a rate needs two
        group=backend.process_group(place.job_id),
        allocated=backend.allocated,
    )
    reader, seen = UsageReader(), 0
    argv = place.argv(sampler)
    with contextlib.closing(
        cast("Generator[bytes, None, None]", place.transport.stream(argv, hold_input=place.hold_input))
    ) as output:
        try:
            for data in output:
                for usage in reader.feed(data):
                    seen += 1
                    if not once or seen == 2:
                        yield place, usage if gpu_asked else replace(usage, gpu_problem=None)
        except LostError:
            raise
        except TransportError as error:
            if not seen:
                raise RunError(
                    f"{place.run.run_id}: nothing can be started in its job: {error.cause}", hint=error.hint
                ) from error
            # The step ends with the job, and not by itself.


_BAR = 20


_SILENT_SECONDS = 60.0
"""An older heartbeat is highlighted."""


_OTHER_LINES = 8
"""Screen lines above and below the list of processes, not counting the GPUs."""


_FEWEST, _ONCE = 3, 12
"""Processes to show: the minimum on a live screen, and the number in a single printout."""


_FORGET_SECONDS = 10.0
"""A run of a group disappears after this long without a sample, multiplied by the number of runs shown."""


_NOTHING = "the run ended before there was anything to show"


def show_live(samples: Samples) -> None:
    """Redraws until the run ends or Ctrl-C is pressed; the last view stays on the screen."""
    latest: dict[str, tuple[float, Inside, Usage]] = {}
    try:
        with (
            contextlib.closing(samples),
            Live(console=out, auto_refresh=False, screen=True) as live,
        ):
            for place, usage in samples:
                now = time.monotonic()
                latest[place.run.run_id] = now, place, usage
                longest = _FORGET_SECONDS * len(latest)  # the runs of a group take turns
                latest = {name: one for name, one in latest.items() if now - one[0] <= longest}
                room = out.height // len(latest) - _OTHER_LINES - max(1, len(usage.gpus))
                views = (view(at, used, processes=max(_FEWEST, room)) for _, at, used in latest.values())
                live.update(Group(*views), refresh=True)
        if not latest:
            note(_NOTHING)
    finally:
        for _, place, usage in latest.values():
            out.print(view(place, usage, processes=_FEWEST))


def show_once(samples: Samples) -> None:
    """Prints each sample once."""
    empty = True
    for place, usage in samples:
        empty = False
        out.print(view(place, usage, processes=_ONCE))
    if empty:
        note(_NOTHING)


def print_json(samples: Samples) -> None:
    """Prints one JSON object per line on standard output; see docs/json.md."""
    with contextlib.closing(samples):
        for place, usage in samples:
            head = {
                "schema": 1,
                "run_id": place.run.run_id,
                "cluster": place.run.cluster,
                "job_id": place.job_id,
                "attempt": place.attempt,
            }
            print_document(head | asdict(usage), indent=None)


def view(place: Inside, usage: Usage, *, processes: int) -> RenderableType:
    """Builds the view of one run."""
    title = Text.assemble(
        (label(place.run), "bold"),
        (f"  {place.run.cluster}, {usage.node}, job {place.job_id}, attempt {place.attempt}", "dim"),
    )
    parts: list[RenderableType] = [title]
    if (progress := _progress(usage)) is not None:
        parts.append(progress)
    parts += [Text(), _resources(usage), Text(), _processes(usage, processes)]
    if (hidden := len(usage.processes) - processes) > 0:
        parts.append(Text(f"and {hidden} more process{'es' * (hidden != 1)}", style="dim"))
    return Group(*parts)


def _progress(usage: Usage) -> Text | None:
    """Formats the heartbeat as one line; returns None if it has no step."""
    beat = usage.heartbeat or {}
    step, total, rate = (_positive(beat.get(key)) for key in ("step", "total_steps", "steps_per_second"))
    if step is None:
        return None
    bench = beat.get("phase") == "bench"  # its steps are seconds
    words = [f"{'second' if bench else 'step'} {format_count(step)}"]
    if total:
        words[0] += f" of {format_count(total)}, {min(1.0, step / total):.0%}"
    if rate and not bench:
        words.append(f"{significant(rate)} steps/s")
        if total:
            seconds = time_left(step=step, total=total, rate=rate, age=usage.heartbeat_age or 0.0)
            words.append(f"{format_seconds(seconds)} left")
    if (success := _positive(beat.get("success"))) is not None:
        words.append(f"success {percent(success)}")
    line = Text("  ".join(words))
    if usage.heartbeat_age is not None:
        style = "yellow" if usage.heartbeat_age > _SILENT_SECONDS else ""
        line.append(f"  heartbeat {format_seconds(usage.heartbeat_age)} ago", style)
    return line


def _resources(usage: Usage) -> Table:
    """Builds one line per GPU, one for the CPUs and one for memory."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(no_wrap=column < 3, overflow="ellipsis")

    def row(name: str, share: float | None, words: str, style: str = "") -> None:
        percent = "" if share is None else f"{share:>4.0%}"
        table.add_row(Text(name, style="bold"), _bar(share), percent, Text(words, style=style))

    for gpu in usage.gpus:
        row(f"GPU {gpu.index}", gpu.utilization, _gpu_words(gpu))
    if not usage.gpus:
        row("GPU", None, usage.gpu_problem or "none asked for", "yellow" if usage.gpu_problem else "dim")
    share = None if usage.cpu is None or not usage.cpus else usage.cpu / usage.cpus
    used = "?" if usage.cpu is None else f"{usage.cpu:.1f}"
    row("CPU", share, f"{used} of {usage.cpus or '?'} processors")
    if usage.memory_bytes is not None:
        limit = usage.memory_limit_bytes
        words = _of(usage.memory_bytes, limit)
        row("memory", usage.memory_bytes / limit if limit else None, words)
    return table


def _processes(usage: Usage, most: int) -> Table:
    numbers = ("pid", "cpu", "memory")
    table = plain_table(*numbers, right=numbers)
    table.add_column("command")  # the only column that may shrink, so it is not no_wrap
    for one in usage.processes[:most]:
        cpu = "" if one.cpu is None else f"{one.cpu:.2f}"
        command = Text(one.command, no_wrap=True, overflow="ellipsis")
        table.add_row(str(one.pid), cpu, format_bytes(one.rss_bytes), command)
    return table


def _gpu_words(gpu: Gpu) -> str:
    words = [gpu.name]
    if gpu.memory_used_bytes is not None:
        words.append(_of(gpu.memory_used_bytes, gpu.memory_total_bytes))
    if gpu.power_watts is not None:
        words.append(f"{gpu.power_watts:.0f} W")
    if gpu.temperature_celsius is not None:
        words.append(f"{gpu.temperature_celsius:.0f} °C")
    return "  ".join(words)


def _of(used: int, limit: int | None) -> str:
    return format_bytes(used) + (f" of {format_bytes(limit)}" if limit else "")


def _bar(share: float | None) -> Text:
    if share is None:
        return Text(" " * _BAR)
    return share_bar(min(1.0, max(0.0, share)), _BAR, "green" if share < 0.9 else "yellow")


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return float(value)
