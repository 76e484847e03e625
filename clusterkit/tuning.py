"""From what a bench measured to the settings of a profile. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterkit.errors import RunError
from clusterkit.measurements import Measurement

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
class Setting:
    """What may be varied without changing what is learnt; precision apart."""

    num_envs: int
    workers: int
    precision: str

    def __str__(self) -> str:
        workers = {0: "the learner's process", 1: "1 worker"}.get(self.workers, f"{self.workers} workers")
        return f"{self.num_envs} environments in {workers}, {self.precision}"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    kind: str
    """`loop`, `envs`, `updates`, `evaluation`."""
    setting: Setting
    env_steps_per_second: float | None
    updates_per_second: float | None
    steps_per_second: float | None
    host_bytes: int | None
    device_bytes: int | None
    error: str | None


@dataclass(frozen=True)
class Bench:
    """A bench.json."""

    time: float
    """When it was last written, seconds since the epoch."""
    complete: bool
    node: str
    device: str
    """Name of the GPU, or of the processor."""
    gpu_bytes: int | None
    """Memory of the GPU; None without one."""
    recipe: str
    modified: bool
    own: Setting
    """What a run with the profile as it is would take."""
    rows: tuple[Row, ...]

    @property
    def day(self) -> str:
        """When it was measured, as a date."""
        return datetime.fromtimestamp(self.time, UTC).date().isoformat()

    def of(self, kind: str, setting: Setting) -> Row | None:
        """What was measured of one kind with a setting, as far as that kind knows of it."""
        for row in self.rows:
            if row.kind == kind and row.error is None and _same(kind, row.setting, setting):
                return row
        return None

    @property
    def evaluation_bytes(self) -> int | None:
        """Host memory that evaluations take beside training; None if it was not measured."""
        return next(
            (row.host_bytes for row in self.rows if row.kind == "evaluation" and row.error is None), None
        )

    def memory(self, row: Row) -> int | None:
        """Host memory of a run like that, with its evaluations."""
        return None if row.host_bytes is None else row.host_bytes + (self.evaluation_bytes or 0)


def _same(kind: str, one: Setting, other: Setting) -> bool:
    if kind == "updates":
        return one.precision == other.precision
    if kind == "envs":
        return (one.num_envs, one.workers) == (other.num_envs, other.workers)
    return one == other


def read_bench(text: bytes | str) -> Bench:
    """Reads a bench.json; what comes from a cluster is not trusted.

    Raises:
        RunError: it is no such file.
    """
    try:
        document = json.loads(text)
        device = document["device"]
        gpu = device.get("type") == "cuda"
        return Bench(
            time=float(document["time"]),
            complete=document["complete"] is True,
            node=_plain(document["node"]),
            device=_plain(device.get("name", "an unknown device")),
            gpu_bytes=int(device["memory_bytes"]) if gpu else None,
            recipe=_plain(document["recipe"]),
            modified=bool(document["modified"]),
            own=_setting(document["own"]),
            rows=tuple(_row(row) for row in document["rows"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(
            f"bench.json is not what the trainer's bench writes: {type(error).__name__} {error}",
            hint="run `clusterkit tune` again",
        ) from error


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        kind=str(row["kind"]),
        setting=_setting(row),
        env_steps_per_second=_number(row["env_steps_per_second"]),
        updates_per_second=_number(row["updates_per_second"]),
        steps_per_second=_number(row["steps_per_second"]),
        host_bytes=_whole(row["host_bytes"]),
        device_bytes=_whole(row["device_bytes"]),
        error=None if row["error"] is None else _plain(row["error"]),
    )


def _setting(row: Mapping[str, Any]) -> Setting:
    if row["precision"] not in ("fp32", "tf32", "bf16"):
        raise ValueError(f"precision {row['precision']!r}")
    return Setting(int(row["num_envs"]), int(row["workers"]), row["precision"])


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value} is no rate")
    return number


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _plain(value: Any) -> str:
    """Text on one line: it goes to a terminal, and into a comment of a settings file."""
    return "".join(char if char.isprintable() else "?" for char in str(value))[:200]


@dataclass(frozen=True)
class Chosen:
    """The setting to take."""

    row: Row | None
    """None when there is none that is safe."""
    fastest: Row | None
    unsafe: Mapping[Setting, str]
    """What was left out, and why."""


def choose(bench: Bench, *, memory: int | None, precision: bool = False) -> Chosen:
    """The fastest safe setting; of those that are as fast, the one with less memory and fewer processes.

    Args:
        bench: what was measured.
        memory: bytes of host memory that the profile asks for; None leaves it to the site.
        precision: whether the precision may be another.
    """
    loops = [row for row in bench.rows if row.kind == "loop" and row.error is None and row.steps_per_second]
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


def _speed(row: Row) -> float:
    return row.steps_per_second or 0.0


def _danger(bench: Bench, row: Row, memory: int | None) -> str:
    """Why a setting is not safe; empty if it is."""
    host, device = bench.memory(row), row.device_bytes
    if host and memory and host > FULL * memory:
        return f"takes {host / memory:.0%} of the memory asked for"
    if device and bench.gpu_bytes and device > FULL * bench.gpu_bytes:
        return f"takes {device / bench.gpu_bytes:.0%} of the GPU's memory"
    return ""


def changes(bench: Bench, chosen: Row, profile: Profile) -> dict[str, str | int]:
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


def remark(bench: Bench, chosen: Row) -> str:
    """One line that says what was measured: for the comment above the keys."""
    before = bench.of("loop", bench.own)
    text = f"{bench.day} on {bench.node} ({bench.device}): {_said(chosen)}"
    if before is not None and before.setting != chosen.setting:
        text += f"; before, {_said(before)}"
    return text


def _said(row: Row) -> str:
    return f"{row.setting}, {_speed(row):,.0f} steps/s"


def measurements(bench: Bench, cluster: str, version: str) -> list[Measurement]:
    """What was measured, a line for each setting; nothing of a recipe that was modified.

    The environments and the learner alone are joined to the whole loops they belong to.

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
    found = []
    for setting in settings:
        loop, envs, updates = (bench.of(kind, setting) for kind in ("loop", "envs", "updates"))
        if loop is None and any(
            _same("envs", other, setting) and bench.of("loop", other) for other in settings
        ):
            continue  # it is in the line of that loop
        whole = loop or envs
        found.append(
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
    return found
