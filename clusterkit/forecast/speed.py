"""Estimates a run's duration from measurements, also those of the user's own runs, never from guesses."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from clusterkit.errors import RunError
from clusterkit.report.evidence import read_evidence
from clusterkit.report.groups import ReportRun, read_runs
from clusterkit.report.measured import Measured, measure
from clusterkit.resources import TEMPLATES
from clusterkit.runs.run_dir import table
from clusterkit.untrusted import read_object

ELSEWHERE = 3.0
"""Factor by which another machine may be slower or faster: its CPUs step the environments."""
_FEWEST = 3
"""Fewest training rows from which a speed is taken."""
_TENTH = 0.1


@dataclass(frozen=True)
class Rate:
    """The speed of a recipe in one run or in a publication."""

    gpu: str
    """Its type as in profiles; "" without a GPU."""
    recipe: str
    steps_per_second: float
    """Environment steps."""
    low: float
    high: float
    """Its slowest and fastest intervals, or the published range."""
    by: str
    """Who measured it: `you`, or a name."""
    source: str
    """A run id, or the publication."""
    machine: str = ""
    date: str = ""
    num_envs: int | None = None
    precision: str | None = None
    gpus: int = 1
    """GPUs that trained together."""
    in_one: int = 1
    """Runs that shared a process, each slower than one alone."""
    own: bool = False
    """One of the user's own runs."""
    cluster: str = ""
    """The cluster of the user's own run."""
    same_work: bool = True
    """Whether it did the same work as the recipe; otherwise it is shown but not used."""


@dataclass(frozen=True)
class Speed:
    """The expected speed of a run."""

    steps_per_second: float
    low: float
    high: float
    runs: int
    """The number of runs behind it."""
    source: str
    caveats: tuple[str, ...] = ()
    """Differences for which nothing was scaled."""
    here: bool = True
    """Whether it was measured on the cluster; otherwise the range covers other machines."""


@dataclass(frozen=True)
class Duration:
    """A duration in seconds: expected, shortest, longest."""

    seconds: float
    shortest: float
    longest: float
    gpu_seconds: float
    """Duration times number of GPUs."""
    attempts: int
    """Attempts at the time limit, for the longest duration."""
    checkpoints: int
    """Number of checkpoints; 0 if unknown."""


def shipped_rates() -> tuple[Rate, ...]:
    """Returns the shipped rates."""
    return shipped((TEMPLATES / "measured.toml").read_text(encoding="utf-8"))


def shipped(text: str) -> tuple[Rate, ...]:
    """Returns the rows of such a file."""
    names = {field.name for field in fields(Rate)}
    return tuple(_row(row, names) for row in tomllib.loads(text).get("measured", ()))


def _row(row: dict[str, Any], names: set[str]) -> Rate:
    rate = float(row["steps_per_second"])
    spread = {"low": float(row.get("low", rate)), "high": float(row.get("high", rate))}
    return Rate(**{**{key: row[key] for key in row if key in names}, "steps_per_second": rate, **spread})


def expect(
    rates: Sequence[Rate],
    *,
    gpu: str,
    recipe: str,
    num_envs: int | None,
    precision: str,
    gpus: int = 1,
    cluster: str = "",
) -> Speed | None:
    """Returns the expected speed: from the user's own runs on the cluster, else elsewhere, else as published.

    Only runs of the same recipe on the same GPU type count. Those with the same numbers of environments and
    GPUs, the same precision and their own process are preferred; otherwise the others are used unscaled, with
    a caveat.

    Measurements on other machines say little about this one: their range is widened by `ELSEWHERE` on either
        side.

    Returns:
        None without measurements.
    """
    fitting = [rate for rate in rates if rate.same_work and (rate.gpu, rate.recipe) == (gpu, recipe)]
    here = [rate for rate in fitting if rate.own and rate.cluster == cluster]
    for group in (here, [rate for rate in fitting if rate.own], fitting):
        wanted = num_envs, precision, gpus, 1
        alike = [rate for rate in group if (rate.num_envs, rate.precision, rate.gpus, rate.in_one) == wanted]
        if chosen := alike or group:
            return _speed(chosen, _caveats(chosen, num_envs, precision, gpus), here=group is here)
    return None


def lasts(total_steps: int, speed: Speed, *, gpus: int, limit: int, checkpoint_every: int | None) -> Duration:
    """Returns the duration of a number of steps at a speed.

    Args:
        total_steps: environment steps.
        speed: the expected speed.
        gpus: number of GPUs.
        limit: time limit of an attempt, seconds.
        checkpoint_every: environment steps between checkpoints.
    """
    seconds, longest = total_steps / speed.steps_per_second, total_steps / speed.low
    return Duration(
        seconds=seconds,
        shortest=total_steps / speed.high,
        longest=longest,
        gpu_seconds=seconds * gpus,
        attempts=max(1, math.ceil(longest / limit)),
        checkpoints=math.ceil(total_steps / checkpoint_every) if checkpoint_every else 0,
    )


def _speed(rates: Sequence[Rate], caveats: Sequence[str], *, here: bool) -> Speed:
    first = rates[-1]
    if first.own:
        source = f"your run {first.source}" if len(rates) == 1 else f"{len(rates)} runs of yours"
        where = "" if here else ", ".join(sorted({f"on {rate.cluster}" for rate in rates if rate.cluster}))
    else:
        source = f"measured by {first.by}"
        where = ", ".join(part for part in (first.source, first.machine, first.date) if part)
    spread = 1.0 if here else ELSEWHERE
    return Speed(
        statistics.median(rate.steps_per_second for rate in rates),
        min(rate.low for rate in rates) / spread,
        max(rate.high for rate in rates) * spread,
        len(rates),
        f"{source} ({where})" if where else source,
        tuple(caveats),
        here,
    )


def _caveats(rates: Sequence[Rate], num_envs: int | None, precision: str, gpus: int) -> list[str]:
    environments = sorted({rate.num_envs for rate in rates if rate.num_envs} - {num_envs})
    precisions = sorted({rate.precision for rate in rates if rate.precision} - {precision})
    others = sorted({rate.gpus for rate in rates} - {gpus})
    caveats = []
    if environments:
        caveats.append(f"measured with {' and '.join(map(str, environments))} environments, not {num_envs}")
    if precisions:
        caveats.append(f"measured in {' and '.join(map(str, precisions))}, not {precision}")
    if others:
        counts = " and ".join(map(str, others))
        caveats.append(f"measured on {counts} GPU{'' if others == [1] else 's'}, not {gpus}")
    if shared := sorted({rate.in_one for rate in rates} - {1}):
        caveats.append(f"measured with {' and '.join(map(str, shared))} runs in one process, not with one")
    return caveats


@dataclass(frozen=True)
class OwnRun:
    """A pulled run of the same recipe."""

    rate: Rate
    memory: float | None
    """Peak main memory of its processes, bytes; None if they trained other runs, too."""
    gpu_memory: float | None


def pulled(results: Path, recipe: Mapping[str, Any]) -> list[OwnRun]:
    """Returns the use of pulled runs of a recipe with exactly these values, oldest first.

    Args:
        results: folder of pulled runs.
        recipe: `name` and `values`, plain JSON.
    """
    runs = []
    for path in sorted(results.glob("*/run.json")):
        ran = table(read_object(path) or {}, "recipe")
        if ran.get("name") == recipe["name"] and ran.get("values") == recipe["values"]:
            try:
                (run,) = read_runs([path.parent])
            except (RunError, OSError):
                continue
            if own := _own(run):
                runs.append(own)
    return sorted(runs, key=lambda own: own.rate.date)


def _own(run: ReportRun) -> OwnRun | None:
    rates = sorted(speed for row in run.training if (speed := row.number("steps_per_second")))
    if len(rates) < _FEWEST or rates[0] <= 0:
        return None
    evidence = read_evidence(run)
    seen, in_one = measure(evidence), evidence.asked.in_one
    overall = _overall(run, seen)
    profile = table(run.document, "profile")
    gpu = profile.get("gpu")
    rate = Rate(
        gpu=gpu if isinstance(gpu, str) else "",
        recipe=str(run.recipe["name"]),
        steps_per_second=rates[len(rates) // 2],
        low=min(rates[int(_TENTH * len(rates))], overall or rates[-1]),
        high=rates[-1 - int(_TENTH * len(rates))],
        by="you",
        source=run.directory.run_id,
        machine=seen.device or "",
        date=str(run.document.get("created", "")),
        num_envs=seen.num_envs,
        precision=seen.precision,
        gpus=gpus if isinstance(gpus := profile.get("gpus"), int) and gpus > 0 else 1,
        in_one=in_one,
        own=True,
        cluster=str(run.document.get("cluster", "")),
    )
    alone = in_one == 1  # else what was seen is the memory of all runs of its process
    return OwnRun(rate, seen.memory if alone else None, seen.gpu_memory if alone else None)


def _overall(run: ReportRun, seen: Measured) -> float | None:
    """Returns steps a second over the run's whole wall time, including start and last evaluation."""
    return run.last_step / seen.running if seen.completed and seen.running > 0 and run.last_step else None
