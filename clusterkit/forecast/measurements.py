"""Measurements by node, one JSON line each: `.clusterkit/measured.jsonl`.

`tune` appends; forecasts of a recipe's speed on a GPU read. Torn or malformed lines are ignored: the next
measurement replaces them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterkit.errors import ClusterkitError
from clusterkit.folders import make_ignored
from clusterkit.forecast.bench import Bench, same
from clusterkit.untrusted import number, parse_object, text, whole

FILE = "measured.jsonl"


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
    known = set(read(folder))
    new = [each for each in measurements if each not in known]
    if not new:
        return 0
    lines = "".join(f"{json.dumps(asdict(each))}\n" for each in new)
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
    """All measurements of a project, oldest first; empty without a file.

    Raises:
        ClusterkitError: the file exists but cannot be read.
    """
    try:
        lines = (folder / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClusterkitError(f"{folder / FILE}: cannot be read: {error.strerror}") from error
    return [found for line in lines.split("\n") if (found := _parsed(line)) is not None]


def of_bench(bench: Bench, cluster: str, version: str) -> list[Measurement]:
    """One measurement per setting; none for a modified recipe.

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
    found = []
    for setting in settings:
        loop, envs, updates = (bench.of(kind, setting) for kind in ("loop", "envs", "updates"))
        if loop is None and any(
            same("envs", other, setting) and bench.of("loop", other) for other in settings
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


_KINDS = {"str": text, "int": whole, "float": number}
"""The functions that read the types in the annotations of `Measurement`."""


def _parsed(line: str) -> Measurement | None:
    row = parse_object(line) or {}
    values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Measurement)}
    for field in fields(Measurement):
        kind, _, optional = str(field.type).partition(" | ")
        value = values[field.name]
        if _KINDS[kind](value) is None and not (optional and value is None):
            return None
    return Measurement(**values)
