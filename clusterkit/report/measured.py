"""A run's use of its machine, from its metrics. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clusterkit.report.evidence import RunEvidence
from clusterkit.report.groups import ReportRun
from clusterkit.results.metrics import MetricRow
from clusterkit.runs.run_dir import moment, table
from clusterkit.untrusted import number, text, whole

PARTS = ("learn", "act", "env", "evaluate", "checkpoint", "other")
"""The parts of the loop's time, in display order."""


@dataclass(frozen=True)
class Measured:
    """One run with all its attempts; None for unknown values."""

    evidence: RunEvidence
    seconds: float
    """Wall time in the training loop."""
    shares: Mapping[str, float]
    """Shares of that time by part, with sum 1; empty for a program that does not time its loop."""
    running: float
    """Wall time of all attempts in seconds; without a record of its end, up to an attempt's last line."""
    waited: float
    """Seconds between the end of an attempt and the start of the next."""
    repeated_steps: int
    """Steps done twice, because they came after the checkpoint of a resumption."""
    last_step: int
    completed: bool
    steps_per_second: float | None
    num_envs: int | None
    precision: str | None
    device: str | None
    capability: float | None
    """Capability of the CUDA device, such as 8.6; None without a GPU."""
    processors: int | None
    """Processors that the program could use."""
    cpu: float | None
    """Mean share of the usable processors, 0..1."""
    cpu_high: float | None
    """The share that 19 of 20 samples stay below."""
    memory: float | None
    """Highest sample, bytes."""
    gpu: float | None
    """Mean utilisation, 0..1."""
    gpu_memory: float | None
    """Highest sample, bytes."""
    gpu_memory_total: float | None
    dormant: float | None
    """Share of dormant critic neurons at the last evaluation."""
    skipped: int
    """Updates skipped because of non-finite numbers."""

    @property
    def run(self) -> ReportRun:
        """The run itself."""
        return self.evidence.run


def measure(evidence: RunEvidence) -> Measured:
    """Summarises a run; means are weighted by the time that each log line covers."""
    run = evidence.run
    weighed = list(_weighed(run.rows))
    seconds = sum(weight for _, weight in weighed)
    header, profile = run.header, table(run.document, "profile")
    beat = evidence.heartbeat
    gpu = table(beat, "gpu")
    cpus = [share for row, _ in weighed if (share := row.number("cpu/share")) is not None]
    return Measured(
        evidence=evidence,
        seconds=seconds,
        shares=_shares(weighed),
        running=sum(_lasted_each(run)),
        waited=_waited(run),
        repeated_steps=_repeated(run.rows),
        last_step=run.last_step,
        completed=_completed(run),
        steps_per_second=run.steps_per_second,
        num_envs=whole(header.get("num_envs") or profile.get("num_envs")),
        precision=text(header.get("precision") or profile.get("precision")),
        device=text(header.get("device")),
        capability=_number(table(header, "versions").get("capability")),
        processors=whole(header.get("processors")) or evidence.asked.granted,
        cpu=_mean(weighed, "cpu/share"),
        cpu_high=sorted(cpus)[int(0.95 * (len(cpus) - 1))] if cpus else None,
        memory=_highest(run.rows, "memory/rss_bytes", beat.get("rss_bytes")),
        gpu=_mean(weighed, "gpu/utilization"),
        gpu_memory=_highest(run.rows, "gpu/memory_bytes", gpu.get("memory_used_bytes")),
        gpu_memory_total=_number(gpu.get("memory_total_bytes"))
        or _number(table(header, "versions").get("memory_bytes")),
        dormant=_last(run.evaluations, "diagnostics/dormant/critic"),
        skipped=int(_last(run.training, "updates_skipped") or 0),
    )


def _weighed(rows: Iterable[MetricRow]) -> Iterable[tuple[MetricRow, float]]:
    """Yields training rows with the seconds since the attempt's previous row; repeated steps count twice."""
    before: dict[int, float] = {}
    for row in rows:
        if row.kind == "train" and row.attempt in before and row.time > before[row.attempt]:
            yield row, row.time - before[row.attempt]
        if row.kind in ("run", "train"):
            before[row.attempt] = row.time


def _shares(weighed: Sequence[tuple[MetricRow, float]]) -> dict[str, float]:
    spent = dict.fromkeys(PARTS, 0.0)
    for row, weight in weighed:
        for part in PARTS:
            spent[part] += weight * (row.number(f"time/{part}") or 0.0)
    total = sum(spent.values())
    return {part: seconds / total for part, seconds in spent.items()} if total else {}


def _mean(weighed: Sequence[tuple[MetricRow, float]], key: str) -> float | None:
    pairs = [(value, weight) for row, weight in weighed if (value := row.number(key)) is not None]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


def _highest(rows: Iterable[MetricRow], key: str, other: object = None) -> float | None:
    values = [row.number(key) for row in rows if row.kind == "train"]
    return max((value for value in (*values, _number(other)) if value is not None), default=None)


def _last(rows: Sequence[MetricRow], key: str) -> float | None:
    return next((row.number(key) for row in reversed(rows) if key in row.values), None)


def _repeated(rows: Sequence[MetricRow]) -> int:
    """Returns steps of attempts beyond the first step that the next one logged."""
    reached: dict[int, int] = {}
    repeated = 0
    for row in rows:
        if row.kind in ("run", "train"):
            if row.attempt not in reached:
                before = max((step for attempt, step in reached.items() if attempt < row.attempt), default=0)
                repeated += max(0, before - row.step)
            reached[row.attempt] = max(reached.get(row.attempt, 0), row.step)
    return repeated


def _lasted_each(run: ReportRun) -> list[float]:
    lines = {row.attempt: row.time for row in run.rows}
    spans = []
    for attempt in run.directory.attempts:
        end = attempt.exit or {"ended": lines.get(attempt.number)}
        spans.append(_lasted(attempt.start, end))
    return [seconds for seconds in spans if seconds is not None]


def _lasted(start: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> float | None:
    started, ended = moment(start or {}, "started"), moment(end or {}, "ended")
    return ended - started if started is not None and ended is not None and ended >= started else None


def _waited(run: ReportRun) -> float:
    attempts = run.directory.attempts
    waits = [
        _lasted({"started": (a.exit or {}).get("ended")}, {"ended": (b.start or {}).get("started")})
        for a, b in pairwise(attempts)
    ]
    return sum(wait for wait in waits if wait is not None)


def _completed(run: ReportRun) -> bool:
    last = run.directory.attempts[-1].exit if run.directory.attempts else None
    return bool(last) and (last or {}).get("why") == "completed"


def _number(value: object) -> float | None:
    """Returns a number, or a number as text."""
    try:
        return number(float(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def known(values: Iterable[float | None]) -> list[float]:
    """Returns the known values."""
    return [value for value in values if value is not None]


def share(value: float) -> str:
    """Returns a share of 0..1 such as "0.4%" or "12%"; never "0%" for a positive one."""
    return f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}"


def median_rate(measured: Sequence[Measured]) -> float | None:
    """Returns environment steps a second, the median over runs."""
    rates = known(run.steps_per_second for run in measured)
    return statistics.median(rates) if rates else None
