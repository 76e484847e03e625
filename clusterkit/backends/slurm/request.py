"""A job's request to Slurm, read from its final sbatch options. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.backends.slurm.rows import parse_time
from clusterkit.units import parse_size
from clusterkit.untrusted import ordinal

_GPU = re.compile(
    r"(?:gres/)?(?:gpu(?=[:=]|$)[:=]?)?(?:(?P<type>[A-Za-z][\w.-]*)[:=]?)?(?P<count>[0-9]{1,9})?"
)
_HELD = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[^:,()=]+?))?(?::no_consume)?[:=](?P<count>[0-9]{1,9})(?:\([^)]*\))?"
)


@dataclass(frozen=True)
class Gpus:
    """GPUs of one kind."""

    type: str
    """Empty if none is named."""
    count: int

    def __str__(self) -> str:
        return f"gpu:{self.type}:{self.count}" if self.type else f"gpu:{self.count}"


@dataclass(frozen=True)
class JobRequest:
    """The request of one job."""

    options: tuple[str, ...]
    partition: str
    """The first named one; empty means the default."""
    account: str
    qos: str
    seconds: int | None
    nodes: int
    cpus: int
    """Of each node, as memory and GPUs."""
    memory: int | None
    """Bytes."""
    gpus: Gpus | None
    gpu_option: str
    """The option that requests the GPUs."""


def read(options: Sequence[str]) -> JobRequest:
    """Returns the request in sbatch options, `--name=value` or `--flag`."""
    given = {name: value for name, _, value in (option.partition("=") for option in options)}
    gpu_option = next((option for option in reversed(options) if _gpus(option)), "")
    memory = given.get("--mem", "")
    return JobRequest(
        options=tuple(options),
        partition=given.get("--partition", "").partition(",")[0],
        account=given.get("--account", ""),
        qos=given.get("--qos", ""),
        seconds=parse_time(given.get("--time", "")),
        nodes=ordinal(given.get("--nodes", "")) or 1,
        cpus=ordinal(given.get("--cpus-per-task", "")) or 1,
        memory=_memory(memory) if memory else None,
        gpus=_gpus(gpu_option) if gpu_option else None,
        gpu_option=gpu_option,
    )


def asks_for_requeue(options: Sequence[str]) -> bool:
    """Returns whether options name a way of requeueing: `--requeue=expedite`, since 25.11 (man sbatch).

    It means `--requeue` and more, so that nothing is added to it.
    """
    return any(option.startswith("--requeue=") for option in options)


def trackable(asked: JobRequest) -> dict[str, float]:
    """Returns the request in Slurm's trackable resources (TRES), by lower-case name; `mem` in GiB.

    GPU types are spelled as at the site.
    """
    counts = {"cpu": float(asked.cpus), "node": 1.0}
    if asked.memory:
        counts["mem"] = asked.memory / 2**30
    if asked.gpus is not None:
        counts["gres/gpu"] = float(asked.gpus.count)
        if asked.gpus.type:
            counts[f"gres/gpu:{asked.gpus.type.lower()}"] = float(asked.gpus.count)
    return {name: count * asked.nodes for name, count in counts.items()}


def node_gpus(gres: str) -> tuple[Gpus, ...]:
    """Returns a node's GPUs in sinfo's %G, e.g. `gpu:a40:4(S:0-1),shard:8`.

    Other resources, such as shards and MPS, are ignored.
    """
    matches = (_HELD.fullmatch(piece.strip()) for piece in re.split(r",(?![^(]*\))", gres))
    gpus = (Gpus(match["type"] or "", int(match["count"])) for match in matches if match)
    return tuple(kind for kind in gpus if kind.count)


def _gpus(option: str) -> Gpus | None:
    name, _, value = option.partition("=")
    first = value.partition(",")[0]
    if name == "--gres" and not re.match(r"(gres/)?gpu\b", first):
        return None
    if name not in ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task"):
        return None
    match = _GPU.fullmatch(first)
    return Gpus(match["type"] or "", int(match["count"] or 1)) if match else Gpus(first, 1)


def _memory(text: str) -> int | None:
    if (mebibytes := ordinal(text)) is not None:  # Slurm's unit
        return mebibytes << 20
    try:
        return parse_size(text)
    except (ValueError, OverflowError):
        return None
