"""What runs requested and used, and the smallest request that would have worked, with margin. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clusterkit.report.measured import Measured, known, share
from clusterkit.units import GIB, format_bytes, format_duration, format_seconds

_MEMORY_MARGIN = 1.3
"""Margin for short peaks between samples, which are seconds apart."""
_CPU_MARGIN = 1.2
_TIME_MARGIN = 1.25
_GPU_SIZES = (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141)
"""Memory, GiB, of available GPUs and MIG slices."""
_TIGHT = 0.9
"""Share of a request above which a run nearly failed."""
_SMALLER = 0.8
"""Share of a request that must suffice for it to count as too large."""


@dataclass(frozen=True)
class ResourceNeed:
    """One resource, described for people."""

    resource: str
    requested: str
    used: str
    enough: str
    """The smallest sufficient request."""
    setting: str | None = None
    """The profile line for it, if it differs from the request."""
    too_little: bool = False


def needs(runs: Sequence[Measured]) -> list[ResourceNeed]:
    """Returns the highest needs among runs with equal requests."""
    every = (_memory(runs), _cpus(runs), _time(runs), _gpu_memory(runs), _gpu(runs))
    return [need for need in every if need is not None]


def _need(
    resource: str,
    asked: int,
    used: str,
    enough: int,
    setting: str,
    show: Callable[[int], str] = str,
    *,
    short: bool = False,
) -> ResourceNeed:
    """Returns a need, with a setting where the request was too small or much too large."""
    differs = not asked or short or enough <= _SMALLER * asked
    requested = show(asked) if asked else "not given"
    return ResourceNeed(resource, requested, used, show(enough), setting if differs else None, short)


def _memory(runs: Sequence[Measured]) -> ResourceNeed | None:
    asked = max(measured.evidence.asked.memory or 0 for measured in runs)
    used = max((measured.memory or 0.0) / measured.evidence.asked.in_one for measured in runs)
    if not used:
        return None
    killed = any(measured.evidence.memory_line for measured in runs)
    text = f"{format_bytes(used)}, {share(used / asked)}" if asked else format_bytes(used)
    gib = max(1, math.ceil(used * _MEMORY_MARGIN / GIB))
    if killed and asked:
        gib = max(gib, math.ceil(2 * asked / GIB))
        text += "; too little: it was killed"
    short = killed or 0 < asked < used / _TIGHT
    return _need("memory", asked, text, gib * GIB, f'memory = "{gib}G"', format_bytes, short=short)


def _cpus(runs: Sequence[Measured]) -> ResourceNeed | None:
    asked = max(measured.evidence.asked.cpus or 0 for measured in runs)
    used = [
        (measured, measured.processors / measured.evidence.asked.in_one, measured.cpu)
        for measured in runs
        if measured.processors and measured.cpu is not None
    ]
    if not used:
        return None
    mean = max(processors * cpu for _, processors, cpu in used)
    high = max(processors * (measured.cpu_high or cpu) for measured, processors, cpu in used)
    enough = max(1, math.ceil(high * _CPU_MARGIN))
    waits = any(measured.shares.get("env", 0.0) >= 0.1 for measured, *_ in used)
    if asked and (waits or enough >= asked):
        enough = asked  # fewer would make the wait for physics longer
    most = max(measured.num_envs + 2 if measured.num_envs and measured.shares else 0 for measured, *_ in used)
    if most:
        enough = min(enough, most)  # one for each environment, the learner and the evaluation: more lie idle
    text = f"{mean:.1f} in the mean, {high:.1f} at most times"
    return _need("CPUs", asked, text, enough, f"cpus = {enough}")


def _time(runs: Sequence[Measured]) -> ResourceNeed | None:
    asked = max(measured.evidence.asked.seconds or 0 for measured in runs)
    longest = max(_whole_run(measured) or 0.0 for measured in runs)
    if not longest:
        return None
    attempts = max(len(measured.run.directory.attempts) for measured in runs)
    unfinished = not all(measured.completed for measured in runs)
    text = f"{format_seconds(longest)} in all" + (f", {attempts} attempts" if attempts > 1 else "")
    text += ", as far as it came, carried on to its last step" if unfinished else ""
    enough = _round_time(longest * _TIME_MARGIN)
    short = attempts == 1 and 0 < asked < longest / _TIGHT  # else it went on in the next attempt
    setting = f'time = "{format_duration(enough)}"'
    return _need("time", asked, text, enough, setting, format_seconds, short=short)


def _whole_run(measured: Measured) -> float | None:
    """Returns seconds of a whole run; for an unfinished one extrapolated at its rate."""
    total = measured.run.document.get("total_steps")
    if measured.completed or not measured.running:
        return measured.running or None
    if not isinstance(total, int) or not 0 < total < 1 << 62 or not measured.last_step:
        return None
    return measured.running * max(1.0, total / measured.last_step)


def _round_time(seconds: float) -> int:
    """Rounds up to 5 minutes below an hour, 15 minutes below four hours, else whole hours."""
    unit = 300 if seconds <= 3600 else 900 if seconds <= 4 * 3600 else 3600
    return math.ceil(seconds / unit) * unit


def _gpu_memory(runs: Sequence[Measured]) -> ResourceNeed | None:
    used = max(measured.gpu_memory or 0.0 for measured in runs)
    total = max(measured.gpu_memory_total or 0.0 for measured in runs)
    if not used or not total:
        return None
    killed = any(measured.evidence.gpu_memory_line for measured in runs)
    wanted = used * _MEMORY_MARGIN / GIB
    gib = next((size for size in _GPU_SIZES if size >= wanted), None)
    text = f"{format_bytes(used)}, {share(used / total)}" + ("; it was full" if killed else "")
    smaller = f"a GPU or slice of {gib} GiB" if gib and gib * GIB < total else format_bytes(total)
    return ResourceNeed(
        "GPU memory", format_bytes(total), text, "more" if killed else smaller, too_little=killed
    )


def _gpu(runs: Sequence[Measured]) -> ResourceNeed | None:
    asked = max(measured.evidence.asked.gpus for measured in runs)
    used = known(measured.gpu for measured in runs)
    if not used:
        return None
    name = next((gpu for measured in runs if (gpu := measured.evidence.asked.gpu)), "GPU")
    text = f"{share(max(used))} busy in the mean" + (" (of one)" if asked > 1 else "")
    together = min(int(0.9 / max(max(used), 0.05)), 4)
    alone = all(measured.evidence.asked.pack == measured.evidence.asked.in_one == 1 for measured in runs)
    enough = f"1 for {together} runs: submit --pack {together}" if together > 1 and alone else "1"
    return ResourceNeed("GPU", f"{asked or 1} x {name}", text, enough, "gpus = 1" if asked > 1 else None)
