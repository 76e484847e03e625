"""From what a bench measured to the setting to take, and what a profile would say of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.forecast.tuning.bench import Bench, BenchRow, BenchSetting
from clusterkit.numbers import beside

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

NEAR = 0.95
"""A setting this close to the fastest is as fast: a few seconds on a shared node tell no more."""
FULL = 0.85
"""The most of the memory asked for, or of the GPU's, that a setting may take and be safe."""
MARGIN = 1.5
"""Of the memory to ask for: a short look does not see everything a long run does."""
_ALIKE = 1.1
"""Two settings whose memory differs by less take the same."""
_SMALLER = 0.8
"""A request is changed when this share of it would do."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Chosen:
    """The setting to take."""

    row: BenchRow | None
    """None when there is none that is safe."""
    fastest: BenchRow | None
    unsafe: Mapping[BenchSetting, str]
    """What was left out, and why."""


def choose(bench: Bench, *, memory: int | None, precision: bool = False) -> Chosen:
    """The fastest safe setting; of those that are as fast, the one with less memory and fewer processes.

    Args:
        bench: what was measured.
        memory: bytes of host memory that the profile asks for; None leaves it to the site.
        precision: whether the precision may be another.
    """
    loops = [row for row in bench.loops if row.steps_per_second]
    if not precision:
        loops = [row for row in loops if row.setting.precision == bench.own.precision]
    unsafe = {row.setting: why for row in loops if (why := _danger(bench, row, memory))}
    safe = [row for row in loops if row.setting not in unsafe]
    if not safe:
        return Chosen(None, None, unsafe)
    fastest = max(safe, key=_speed)
    near = [row for row in safe if _speed(row) >= NEAR * _speed(fastest)]
    least = min(row.host_bytes or 0 for row in near)
    small = [row for row in near if (row.host_bytes or 0) <= _ALIKE * least]
    best = min(
        small,
        key=lambda row: (row.setting.workers, row.setting.num_envs, row.setting != bench.own, -_speed(row)),
    )
    return Chosen(best, fastest, unsafe)


def _speed(row: BenchRow) -> float:
    return row.steps_per_second or 0.0


def _danger(bench: Bench, row: BenchRow, memory: int | None) -> str:
    """Why a setting is not safe; empty if it is."""
    host, device = bench.memory(row), row.device_bytes
    if host and memory and host > FULL * memory:
        return f"takes {host / memory:.0%} of the memory asked for"
    if device and bench.gpu_bytes and device > FULL * bench.gpu_bytes:
        return f"takes {device / bench.gpu_bytes:.0%} of the GPU's memory"
    return ""


def changes(bench: Bench, chosen: BenchRow, profile: Profile) -> dict[str, str | int]:
    """The keys of the profile that are to be others.

    What is asked for is only made less, never more: more was not there to be measured.

    Args:
        bench: what was measured.
        chosen: the setting to take.
        profile: as it is.
    """
    setting = chosen.setting
    changed: dict[str, str | int] = {}
    if setting.num_envs != (profile.num_envs or bench.own.num_envs):
        changed["num_envs"] = setting.num_envs
    if setting.precision != profile.precision:
        changed["precision"] = setting.precision
    # the learner, its further threads, and the evaluation
    cpus = setting.workers + profile.threads + 1
    if cpus <= _SMALLER * profile.cpus:
        changed["cpus"] = cpus
    now = bench.own.workers if profile.workers is None else profile.workers
    if setting.workers != now or (profile.workers is None and {"cpus", "num_envs"} & changed.keys()):
        # left to the trainer, their number would follow these
        changed["workers"] = setting.workers
    if profile.memory and chosen.host_bytes and bench.evaluation_bytes is not None:
        enough = math.ceil(MARGIN * (bench.memory(chosen) or 0) / _GIB)
        if enough * _GIB <= _SMALLER * profile.memory:
            changed["memory"] = f"{enough}G"
    return {
        key: changed[key] for key in ("num_envs", "workers", "precision", "cpus", "memory") if key in changed
    }


def remark(bench: Bench, chosen: BenchRow) -> str:
    """One line that says what was measured: for the comment above the keys."""
    before = bench.of("loop", bench.own)
    best, now = beside([_speed(chosen), _speed(before) if before else None])
    text = f"{bench.day} on {bench.node} ({bench.device}): {best} steps/s"
    if before is not None and before.setting != chosen.setting:
        text += f"; {now} with {before.setting}"
    return text
