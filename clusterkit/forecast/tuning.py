"""Chooses the best setting by a bench's measurements, and what a profile would say of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting
from clusterkit.units import GIB, beside

if TYPE_CHECKING:
    from clusterkit.config.models import Profile


NEAR = 0.95
"""Relative speed from which a setting counts as equally fast, given the noise of short measurements."""
FULL = 0.85
"""Largest safe share of the requested memory or of the GPU's."""
MARGIN = 1.5
"""Margin on requested memory, because a short measurement misses later peaks."""
_ALIKE = 1.1
"""Ratio below which two settings' memory counts as equal."""
_SMALLER = 0.8
"""Share of a request that must suffice for it to be reduced."""


@dataclass(frozen=True)
class Chosen:
    """The chosen setting."""

    row: BenchRow | None
    """None if no setting is safe."""
    fastest: BenchRow | None
    unsafe: Mapping[BenchSetting, str]
    """Rejected settings, with reasons."""


def choose(bench: Bench, *, memory: int | None, precision: bool = False) -> Chosen:
    """Returns the fastest safe setting; among equals the one with less memory and fewer processes.

    Args:
        bench: what was measured.
        memory: bytes of host memory that the profile requests; None leaves it to the site.
        precision: whether the precision may change.
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
    """Returns why a setting is not safe; empty if it is."""
    host, device = bench.memory(row), row.device_bytes
    if host and memory and host > FULL * memory:
        return f"takes {host / memory:.0%} of the requested memory"
    if device and bench.gpu_bytes and device > FULL * bench.gpu_bytes:
        return f"takes {device / bench.gpu_bytes:.0%} of the GPU's memory"
    return ""


def changes(bench: Bench, chosen: BenchRow, profile: Profile) -> dict[str, str | int]:
    """Returns the profile's changed keys.

    Requests are only reduced: larger ones could not be measured.

    Args:
        bench: what was measured.
        chosen: the chosen setting.
        profile: the current one.
    """
    setting = chosen.setting
    changed: dict[str, str | int] = {}
    if setting.num_envs != (profile.num_envs or bench.own.num_envs):
        changed["num_envs"] = setting.num_envs
    if setting.precision != profile.precision:
        changed["precision"] = setting.precision
    # the learner, its further threads, and the evaluation
    cpus = setting.workers + (profile.threads or bench.threads) + 1
    if cpus <= _SMALLER * profile.cpus:
        changed["cpus"] = cpus
    now = bench.own.workers if profile.workers is None else profile.workers
    if setting.workers != now or (profile.workers is None and {"cpus", "num_envs"} & changed.keys()):
        # left to the trainer, their number would follow these
        changed["workers"] = setting.workers
    if profile.memory and chosen.host_bytes and bench.evaluation_bytes is not None:
        enough = math.ceil(MARGIN * (bench.memory(chosen) or 0) / GIB)
        if enough * GIB <= _SMALLER * profile.memory:
            changed["memory"] = f"{enough}G"
    return {
        key: changed[key] for key in ("num_envs", "workers", "precision", "cpus", "memory") if key in changed
    }


def remark(bench: Bench, chosen: BenchRow) -> str:
    """Returns a line about the measurement, for the comment above the keys."""
    before = bench.of("loop", bench.own)
    best, now = beside([_speed(chosen), _speed(before) if before else None])
    text = f"{bench.day} on {bench.node} ({bench.device}): {best} steps/s"
    if before is not None and before.setting != chosen.setting:
        text += f"; {now} with {before.setting}"
    return text
