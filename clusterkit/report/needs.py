"""Requested against used: the smallest request that would have worked, with margin. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.report.evidence import Evidence
from clusterkit.report.measured import Measured
from clusterkit.report.words import GIB, share, size
from clusterkit.units import format_duration, format_seconds

MEMORY_MARGIN = 1.3
"""Samples are seconds apart and miss short peaks."""
CPU_MARGIN = 1.2
TIME_MARGIN = 1.25
_GPU_SIZES = (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141)
"""GiB of GPUs and of their MIG slices that are sold."""
_TIGHT = 0.9
"""A run that used more of its request than this was lucky."""
_SMALLER = 0.8
"""A request is called too large when this share of it would do."""


@dataclass(frozen=True)
class Need:
    """One resource; texts for a person."""

    resource: str
    asked: str
    used: str
    enough: str
    """The smallest request that would have worked; "" when nothing tells."""
    setting: str = ""
    """The line of a profile that asks for that, where it differs from what was asked; else ""."""
    too_little: bool = False


def needs(runs: Sequence[tuple[Evidence, Measured]]) -> list[Need]:
    """Of runs that asked alike: what the hungriest of them used."""
    found = (_memory(runs), _cpus(runs), _time(runs), _gpu_memory(runs), _gpu(runs))
    return [need for need in found if need is not None]


def _memory(runs: Sequence[tuple[Evidence, Measured]]) -> Need | None:
    asked = max((evidence.asked.memory or 0 for evidence, _ in runs), default=0)
    used = max(((measured.memory or 0.0) / evidence.asked.in_one for evidence, measured in runs), default=0.0)
    if not used:
        return None
    killed = any(evidence.memory_line for evidence, _ in runs)
    told = f"{size(used)}, {share(used / asked)}" if asked else size(used)
    gib = max(1, math.ceil(used * MEMORY_MARGIN / GIB))
    short = killed or 0 < asked < used / _TIGHT
    if killed and asked:
        gib = max(gib, math.ceil(2 * asked / GIB))
        told += "; too little: it was killed"
    return _sized(asked, told, gib, short)


def _sized(asked: int, told: str, gib: int, short: bool) -> Need:
    differs = not asked or short or gib * GIB <= _SMALLER * asked
    shown = size(asked) if asked else "not given"
    return Need("memory", shown, told, f"{gib} GiB", f'memory = "{gib}G"' if differs else "", short)


def _cpus(runs: Sequence[tuple[Evidence, Measured]]) -> Need | None:
    asked = max((evidence.asked.cpus or 0 for evidence, _ in runs), default=0)
    known = [
        (m.processors / evidence.asked.in_one, m.cpu, m.cpu_high or m.cpu, m)
        for evidence, m in runs
        if m.processors and m.cpu is not None
    ]
    if not known:
        return None
    mean = max(processors * cpu for processors, cpu, _, _ in known)
    high = max(processors * (peak or 0.0) for processors, _, peak, _ in known)
    enough = max(1, math.ceil(high * CPU_MARGIN))
    told = f"{mean:.1f} in the mean, {high:.1f} at most times"
    waits = any(m.shares.get("env", 0.0) >= 0.1 for _, _, _, m in known)
    if asked and (waits or enough >= asked):
        enough = asked  # fewer would make the wait for physics longer
    most = max((m.num_envs + 2 if m.num_envs and m.shares else 0 for _, _, _, m in known), default=0)
    if most:
        enough = min(enough, most)  # one for each environment, the learner and the evaluation: more lie idle
    differs = not asked or enough <= _SMALLER * asked
    return Need("CPUs", str(asked or "not given"), told, str(enough), f"cpus = {enough}" if differs else "")


def _time(runs: Sequence[tuple[Evidence, Measured]]) -> Need | None:
    asked = max((evidence.asked.seconds or 0 for evidence, _ in runs), default=0)
    whole = [_whole_run(evidence, measured) for evidence, measured in runs]
    known = [seconds for seconds in whole if seconds]
    if not known:
        return None
    longest = max(known)
    attempts = max(len(evidence.run.directory.attempts) for evidence, _ in runs)
    unfinished = not all(measured.completed for _, measured in runs)
    told = f"{format_seconds(longest)} in all" + (f", {attempts} attempts" if attempts > 1 else "")
    told += ", as far as it came, carried on to its last step" if unfinished else ""
    enough = _round_time(longest * TIME_MARGIN)
    short = attempts == 1 and 0 < asked < longest / _TIGHT  # else it went on in the next attempt
    differs = not asked or short or enough <= _SMALLER * asked
    shown = f"{format_seconds(asked)} an attempt" if asked else "not given"
    return Need(
        "time",
        shown,
        told,
        format_seconds(enough),
        f'time = "{format_duration(enough)}"' if differs else "",
        short,
    )


def _whole_run(evidence: Evidence, measured: Measured) -> float | None:
    """Seconds of a run from its first to its last step; of an unfinished one at the rate so far."""
    total = evidence.run.document.get("total_steps")
    if measured.completed or not measured.running:
        return measured.running or None
    if not isinstance(total, int) or not 0 < total < 1 << 62 or not measured.last_step:
        return None
    return measured.running * max(1.0, total / measured.last_step)


def _round_time(seconds: float) -> int:
    """Up to a round number: of 5 minutes below an hour, of 15 below four, else of an hour."""
    unit = 300 if seconds <= 3600 else 900 if seconds <= 4 * 3600 else 3600
    return math.ceil(seconds / unit) * unit


def _gpu_memory(runs: Sequence[tuple[Evidence, Measured]]) -> Need | None:
    used = max((measured.gpu_memory or 0.0 for _, measured in runs), default=0.0)
    total = max((measured.gpu_memory_total or 0.0 for _, measured in runs), default=0.0)
    if not used or not total:
        return None
    killed = any(evidence.gpu_memory_line for evidence, _ in runs)
    wanted = used * MEMORY_MARGIN / GIB
    gib = next((size for size in _GPU_SIZES if size >= wanted), None)
    told = f"{size(used)}, {share(used / total)}" + ("; it was full" if killed else "")
    enough = (
        "more" if killed else f"a GPU or slice of {gib} GiB" if gib and gib * GIB < total else size(total)
    )
    return Need("GPU memory", size(total), told, enough, too_little=killed)


def _gpu(runs: Sequence[tuple[Evidence, Measured]]) -> Need | None:
    asked = max((evidence.asked.gpus for evidence, _ in runs), default=0)
    used = [measured.gpu for _, measured in runs if measured.gpu is not None]
    if not used:
        return None
    name = next((evidence.asked.gpu for evidence, _ in runs if evidence.asked.gpu), "GPU")
    told = f"{share(max(used))} busy in the mean"
    together = min(int(0.9 / max(max(used), 0.05)), 4)
    alone = all(evidence.asked.pack == evidence.asked.in_one == 1 for evidence, _ in runs)
    enough = f"1 for {together} runs: submit --pack {together}" if together > 1 and alone else "1"
    setting = "gpus = 1" if asked > 1 else ""
    return Need("GPU", f"{asked or 1} x {name}", told + (" (of one)" if asked > 1 else ""), enough, setting)
