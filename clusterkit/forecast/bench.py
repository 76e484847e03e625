"""The measurements of the trainer's bench, from bench.json. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clusterkit.errors import RunError
from clusterkit.units import plural
from clusterkit.untrusted import number, parse_json

PROGRAM = ("python", "-m", "trainer", "bench")
"""The start of a measuring run's argv."""
_MOST = 10_000
"""Most plausible environments or workers."""


@dataclass(frozen=True)
class BenchSetting:
    """The settings that do not change what is learned, except for precision."""

    num_envs: int
    workers: int
    precision: str

    def __str__(self) -> str:
        workers = {0: "the learner's process", 1: "1 worker"}.get(self.workers, f"{self.workers} workers")
        return f"{plural(self.num_envs, 'environment')} in {workers}, {self.precision}"


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
    """Name of the GPU or CPU."""
    gpu_bytes: int | None
    """Memory of the GPU; None without one."""
    recipe: str
    own: BenchSetting
    """The setting of the unchanged profile."""
    rows: tuple[BenchRow, ...]
    threads: int = 1
    """Of PyTorch in the learner."""

    @property
    def day(self) -> str:
        """The date of the measurement."""
        return datetime.fromtimestamp(self.time, UTC).date().isoformat()

    def of(self, kind: str, setting: BenchSetting) -> BenchRow | None:
        """Returns the best measurement of one kind with a setting; None without one."""
        measured = [
            row
            for row in self.rows
            if row.kind == kind and row.error is None and _same(kind, row.setting, setting)
        ]
        return max(measured, key=lambda row: row.steps_per_second or 0.0, default=None)

    @property
    def loops(self) -> list[BenchRow]:
        """The measured whole loops, one per setting."""
        settings = dict.fromkeys(row.setting for row in self.rows if row.kind == "loop")
        return [row for setting in settings if (row := self.of("loop", setting)) is not None]

    @property
    def evaluation_bytes(self) -> int | None:
        """Host memory of evaluations beside training; None if not measured."""
        return next(
            (row.host_bytes for row in self.rows if row.kind == "evaluation" and row.error is None), None
        )

    def memory(self, row: BenchRow) -> int | None:
        """Returns the host memory of such a run with its evaluations."""
        return None if row.host_bytes is None else row.host_bytes + (self.evaluation_bytes or 0)


def _same(kind: str, one: BenchSetting, other: BenchSetting) -> bool:
    """Returns whether two settings are equivalent for a kind of measurement."""
    if kind == "updates":
        return one.precision == other.precision
    if kind == "envs":
        return (one.num_envs, one.workers) == (other.num_envs, other.workers)
    return one == other


def read_bench(text: bytes | str) -> Bench:
    """Parses a bench.json, which is not trusted.

    Raises:
        RunError: it is not a valid bench.json.
    """
    try:
        document = parse_json(text)
        device = document["device"]
        gpu = device.get("type") == "cuda"
        return Bench(
            time=_moment(document["time"]),
            complete=document["complete"] is True,
            node=_plain(document["node"]),
            device=_plain(device.get("name", "an unknown device")),
            gpu_bytes=int(device["memory_bytes"]) if gpu else None,
            recipe=_plain(document["recipe"]),
            own=_setting(document["own"]),
            rows=tuple(_row(row) for row in document["rows"]),
            threads=max(1, int(device.get("threads", 1))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise RunError(
            f"bench.json is not a file of the trainer's bench: {type(error).__name__} {error}",
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
    amount = number(value)
    if value is not None and (amount is None or amount < 0):
        raise ValueError(f"{value} is no amount")
    return amount


def _whole(value: Any) -> int | None:
    amount = _number(value)
    return None if amount is None else int(amount)


def _moment(value: Any) -> float:
    """Returns the Unix seconds of a valid date."""
    return datetime.fromtimestamp(float(value), UTC).timestamp()


def _plain(value: Any) -> str:
    """Returns text on one line, for terminals and comments in settings files."""
    return "".join(char if char.isprintable() else "?" for char in str(value))[:200]
