"""Reads a run's request, state and cause of death from a pulled run directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.backends.base import backend_of_kind
from clusterkit.backends.jobs import SCHEDULER_LOG, JobResources
from clusterkit.backends.submission import Submission
from clusterkit.config.kinds import BUILT_IN, DEFAULT
from clusterkit.report.groups import ReportRun
from clusterkit.runs.run_dir import newest_request, table
from clusterkit.untrusted import open_regular, read_object, whole

_GPU_MEMORY = re.compile(
    r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUDA error: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|the device's memory is (too small|full)"
)
_MEMORY = re.compile(r"oom[-_ ]kill|Exceeded (job|step) memory limit|\bMemoryError\b|Cannot allocate memory")
_TAIL_BYTES = 40_000


@dataclass(frozen=True)
class Asked:
    """A run's request per attempt; None for values left to the cluster."""

    cpus: int | None
    memory: int | None
    """Bytes."""
    seconds: int | None
    gpu: str | None
    gpus: int
    """0 without a GPU."""
    pack: int = 1
    """Runs that share the job; processors and memory are this run's share."""
    in_one: int = 1
    """Runs that one process trains, whose processors and memory each of them reports as its own."""
    granted: int | None = None
    """Processors that the job's options name; None for a scheduler that hands out none."""


@dataclass(frozen=True)
class RunEvidence:
    """A run with the contents of its directory besides metrics."""

    run: ReportRun
    asked: Asked
    heartbeat: Mapping[str, Any]
    gpu_memory_line: str | None = None
    """The line that says the GPU's memory was too small."""
    memory_line: str | None = None
    """The line that says the node's memory was too small."""


def read_evidence(run: ReportRun) -> RunEvidence:
    """Reads the heartbeat, the newest request and the ends of the logs. Missing files are ignored."""
    folder = run.directory.path
    logs = [
        folder / SCHEDULER_LOG,
        *(folder / "attempts" / str(a.number) / "log" for a in run.directory.attempts),
    ]
    lines = [line for path in logs for line in tail(path)]
    lines += [str(row.values.get("message", "")) for row in run.rows if row.kind == "event"]
    return RunEvidence(
        run,
        asked(run.document, newest_request(folder)),
        read_object(folder / "heartbeat.json") or {},
        next((line.strip() for line in lines if _GPU_MEMORY.search(line)), None),
        next((line.strip() for line in lines if _MEMORY.search(line)), None),
    )


def asked(document: Mapping[str, Any], request: Submission) -> Asked:
    """Returns the resources in the options of the newest submission, or else those of the profile.

    Args:
        document: run.json.
        request: the newest submission.
    """
    given, pack = _resources(request.options), max(request.pack, 1)
    profile = table(document, "profile")
    gpu = profile.get("gpu")
    granted = given.cpus // pack if given.cpus else None
    return Asked(
        cpus=granted or _whole(profile.get("cpus")),
        memory=given.memory // pack if given.memory else _whole(profile.get("memory")),
        seconds=given.seconds or _whole(document.get("time_limit_seconds")) or _whole(profile.get("time")),
        gpu=gpu if isinstance(gpu, str) else None,
        gpus=(_whole(profile.get("gpus")) or 1) if gpu else 0,
        pack=pack,
        in_one=max(request.in_one, 1),
        granted=granted,
    )


def _resources(options: Sequence[str]) -> JobResources:
    """Returns the resources in options; only their own backend finds the time limit of nearly every job."""
    read = {kind: backend_of_kind(kind).asked(options) for kind in BUILT_IN}
    return next((resources for resources in read.values() if resources.seconds is not None), read[DEFAULT])


def tail(path: Path) -> list[str]:
    """Returns the lines at the end of a log; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _whole(value: object) -> int | None:
    number = whole(value)
    return number if number and number > 0 else None
