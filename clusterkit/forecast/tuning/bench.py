"""What the trainer's bench measured, as it writes it into bench.json. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clusterkit.errors import RunError

PROGRAM = ("python", "-m", "trainer", "bench")
"""How the argv of a run that measures begins."""
_MOST = 10_000
"""Environments or workers that anybody could mean."""


@dataclass(frozen=True)
class BenchSetting:
    """What may be varied without changing what is learnt; precision apart."""

    num_envs: int
    workers: int
    precision: str

    def __str__(self) -> str:
        workers = {0: "the learner's process", 1: "1 worker"}.get(self.workers, f"{self.workers} workers")
        return f"{self.num_envs} environments in {workers}, {self.precision}"


@dataclass(frozen=True)
class BenchRow:
    """One measurement."""

    kind: str
    """`loop`, `envs`, `updates`, `evaluation`."""
    setting: BenchSetting
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
    own: BenchSetting
    """What a run with the profile as it is would take."""
    rows: tuple[BenchRow, ...]

    @property
    def day(self) -> str:
        """When it was measured, as a date."""
        return datetime.fromtimestamp(self.time, UTC).date().isoformat()

    def of(self, kind: str, setting: BenchSetting) -> BenchRow | None:
        """The measurement of one kind with a setting, the better one of two; None without any."""
        found = [
            row
            for row in self.rows
            if row.kind == kind and row.error is None and same(kind, row.setting, setting)
        ]
        return max(found, key=lambda row: row.steps_per_second or 0.0, default=None)

    @property
    def loops(self) -> list[BenchRow]:
        """The whole loops that were measured, one for each setting."""
        settings = dict.fromkeys(row.setting for row in self.rows if row.kind == "loop")
        return [row for setting in settings if (row := self.of("loop", setting)) is not None]

    @property
    def evaluation_bytes(self) -> int | None:
        """Host memory that evaluations take beside training; None if it was not measured."""
        return next(
            (row.host_bytes for row in self.rows if row.kind == "evaluation" and row.error is None), None
        )

    def memory(self, row: BenchRow) -> int | None:
        """Host memory of a run like that, with its evaluations."""
        return None if row.host_bytes is None else row.host_bytes + (self.evaluation_bytes or 0)


def same(kind: str, one: BenchSetting, other: BenchSetting) -> bool:
    """Whether two settings are one to a kind of measurement."""
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
            time=_moment(document["time"]),
            complete=document["complete"] is True,
            node=_plain(document["node"]),
            device=_plain(device.get("name", "an unknown device")),
            gpu_bytes=int(device["memory_bytes"]) if gpu else None,
            recipe=_plain(document["recipe"]),
            modified=bool(document["modified"]),
            own=_setting(document["own"]),
            rows=tuple(_row(row) for row in document["rows"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise RunError(
            f"bench.json is not what the trainer's bench writes: {type(error).__name__} {error}",
            hint="run `clusterkit tune` again",
        ) from error


def _row(row: Mapping[str, Any]) -> BenchRow:
    return BenchRow(
        kind=str(row["kind"]),
        setting=_setting(row),
        env_steps_per_second=_number(row["env_steps_per_second"]),
        updates_per_second=_number(row["updates_per_second"]),
        steps_per_second=_number(row["steps_per_second"]),
        host_bytes=_whole(row["host_bytes"]),
        device_bytes=_whole(row["device_bytes"]),
        error=None if row["error"] is None else _plain(row["error"]),
    )


def _setting(row: Mapping[str, Any]) -> BenchSetting:
    if row["precision"] not in ("fp32", "tf32", "bf16"):
        raise ValueError(f"precision {row['precision']!r}")
    num_envs, workers = int(row["num_envs"]), int(row["workers"])
    if not (1 <= num_envs <= _MOST and 0 <= workers <= _MOST):
        raise ValueError(f"{num_envs} environments in {workers} workers")
    return BenchSetting(num_envs, workers, row["precision"])


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value} is no rate")
    return number


def _whole(value: Any) -> int | None:
    if value is not None and int(value) < 0:
        raise ValueError(f"{value} bytes")
    return None if value is None else int(value)


def _moment(value: Any) -> float:
    """Unix seconds that are a date."""
    return datetime.fromtimestamp(float(value), UTC).timestamp()


def _plain(value: Any) -> str:
    """Text on one line: it goes to a terminal, and into a comment of a settings file."""
    return "".join(char if char.isprintable() else "?" for char in str(value))[:200]
