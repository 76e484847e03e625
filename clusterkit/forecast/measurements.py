"""Measurements by node, one JSON line each: `.clusterkit/measured.jsonl`.

`tune` appends; forecasts of a recipe's speed on a GPU read. Torn or malformed lines are ignored: the next
measurement replaces them. From a bench's measurements, the best setting and the profile's changes are chosen.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ClusterkitError
from clusterkit.folders import make_ignored
from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting, same
from clusterkit.units import GIB, beside
from clusterkit.untrusted import number, parse_object, text, whole

if TYPE_CHECKING:
    from clusterkit.config.models import Profile


FILE = "measured.jsonl"
_KINDS = {"str": text, "int": whole, "float": number}
"""The functions that read the types in the annotations of `Measurement`."""
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
class Measurement:
    """One combination of settings on one node; None means not measured."""

    date: str
    """UTC, ISO 8601."""
    cluster: str
    node: str
    gpu: str | None
    """The GPU's name in its driver; None for training on the CPU."""
    recipe: str
    num_envs: int
    workers: int
    precision: str
    env_steps_per_second: float | None
    """Environment steps of the environments alone."""
    updates_per_second: float | None
    """Updates of the learner alone."""
    steps_per_second: float | None
    """Environment steps of the whole training loop."""
    host_bytes: int | None
    """Peak host memory: of the whole loop with a full replay and evaluations, if measured."""
    device_bytes: int | None
    """Peak GPU memory."""
    clusterkit: str
    """The version that measured."""


def append(folder: Path, measurements: Iterable[Measurement]) -> int:
    """Appends new measurements; returns their number.

    Args:
        folder: `.clusterkit` of the project.
        measurements: the measurements.

    Raises:
        ClusterkitError: the file cannot be written.
    """
    path = folder / FILE
    recorded = set(read(folder))
    new = [measurement for measurement in measurements if measurement not in recorded]
    if not new:
        return 0
    lines = "".join(f"{json.dumps(asdict(measurement))}\n" for measurement in new)
    try:
        make_ignored(folder)
        before = path.read_bytes() if path.is_file() else b""
        torn = not before.endswith(b"\n") and before != b""
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(("\n" if torn else "").encode() + lines.encode())
    except OSError as error:
        raise ClusterkitError(
            f"{path}: cannot be written: {error.strerror}", hint="check its permissions and the free space"
        ) from error
    return len(new)


def read(folder: Path) -> list[Measurement]:
    """Returns all measurements of a project, oldest first; empty without a file.

    Raises:
        ClusterkitError: the file exists but cannot be read.
    """
    try:
        lines = (folder / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClusterkitError(f"{folder / FILE}: cannot be read: {error.strerror}") from error
    return [measurement for line in lines.split("\n") if (measurement := _parsed(line)) is not None]


def of_bench(bench: Bench, cluster: str, version: str) -> list[Measurement]:
    """Returns one measurement per setting; none for a modified recipe.

    Measurements of environments or learner alone are joined to their whole loops.

    Args:
        bench: what was measured.
        cluster: where.
        version: of clusterkit.
    """
    if bench.modified:
        return []
    date = datetime.fromtimestamp(bench.time, UTC).isoformat(timespec="seconds")
    settings = dict.fromkeys(
        row.setting for row in bench.rows if row.error is None and row.kind in ("loop", "envs")
    )
    measurements = []
    for setting in settings:
        loop, envs, updates = (bench.of(kind, setting) for kind in ("loop", "envs", "updates"))
        if loop is None and any(
            same("envs", other, setting) and bench.of("loop", other) for other in settings
        ):
            continue  # it is in the line of that loop
        whole = loop or envs
        measurements.append(
            Measurement(
                date=date,
                cluster=cluster,
                node=bench.node,
                gpu=bench.device if bench.gpu_bytes is not None else None,
                recipe=bench.recipe,
                num_envs=setting.num_envs,
                workers=setting.workers,
                precision=setting.precision,
                env_steps_per_second=envs.env_steps_per_second if envs else None,
                updates_per_second=updates.updates_per_second if updates and loop else None,
                steps_per_second=loop.steps_per_second if loop else None,
                host_bytes=bench.memory(loop) if loop else whole.host_bytes if whole else None,
                device_bytes=loop.device_bytes if loop else None,
                clusterkit=version,
            )
        )
    return measurements


def _parsed(line: str) -> Measurement | None:
    row = parse_object(line) or {}
    values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Measurement)}
    for field in fields(Measurement):
        kind, _, optional = str(field.type).partition(" | ")
        value = values[field.name]
        if _KINDS[kind](value) is None and not (optional and value is None):
            return None
    return Measurement(**values)


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
