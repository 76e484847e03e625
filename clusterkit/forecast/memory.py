"""Judges whether a run fits the memory of its GPU and node, with advice if it does not. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from clusterkit.config.lines import join_key
from clusterkit.units import GIB
from trainer.recipe.memory import host_parts, learner_parts, library_parts, replay_parts, staged_parts
from trainer.recipe.share import Part
from trainer.recipe.sizes import Sizes

GPU_RESERVE = 0.08
"""Share of a GPU's nominal size for the driver, ECC (an A40 of 48 GB shows 45 GiB) and fragmentation."""
HOST_RESERVE = 0.1
"""Share for Python's heaps, pipes and the programs around the run."""
_PARTS = (1, 2, 4, 8, 16)
"""Parts of a batch that a full GPU makes the trainer try."""


class Fit(StrEnum):
    """Whether it fits."""

    FITS = "fits"
    FALLBACK = "fallback"
    """The trainer's memory fallback makes it fit: replay on the host, batches in parts."""
    TOO_LARGE = "too large"
    UNKNOWN = "unknown"
    """The available memory is unknown."""


@dataclass(frozen=True)
class Store:
    """One memory: its contents and its size."""

    parts: tuple[Part, ...]
    available: int | None
    """Bytes; None is not known."""
    reserve: int
    """Reserved bytes of these."""
    fit: Fit
    advice: str = ""
    """What will happen or what to do; if it fits, any assumption."""

    @property
    def needed(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Memory:
    """The memories of one run."""

    gpu: Store | None
    """Memory of each GPU; None without one."""
    host: Store


@dataclass(frozen=True)
class Machine:
    """A profile's request on a cluster."""

    processors: int
    host_memory: int | None
    gpu: str | None
    """Its type; None without a GPU."""
    gpu_memory: int | None
    """Bytes; None is not known."""
    cluster: str
    gpu_memory_least: int | None = None
    """If unknown: that of the smallest card with that name."""
    nodes: int = 1
    """How many such machines share the run."""


def judge(sizes: Sizes, machine: Machine, workers: int | None, episodes: int | None) -> Memory:
    """Places all parts and judges whether they fit.

    Args:
        sizes: the run's.
        machine: the run's hardware.
        workers: environment processes; None as the trainer chooses.
        episodes: a task of an evaluation; None is the recipe's.
    """
    processes = host_parts(sizes, machine.processors, workers, episodes=episodes)
    if not sizes.on_gpu:
        own = _of_all(sizes, (*replay_parts(sizes), *learner_parts(sizes)))
        return Memory(None, _host(_of_each(machine, (*processes, *own)), machine))
    gpu, moved = _gpu(sizes, machine)
    return Memory(gpu, _host(_of_each(machine, (*processes, *_of_all(sizes, moved))), machine))


def _of_all(sizes: Sizes, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns the parts of all ranks together."""
    return tuple(replace(part, bytes=sizes.ranks * part.bytes) for part in parts)


def _of_each(machine: Machine, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns what each node has of the parts of all ranks, which are spread evenly."""
    return tuple(replace(part, bytes=-(-part.bytes // machine.nodes)) for part in parts)


def _gpu(sizes: Sizes, machine: Machine) -> tuple[Store, tuple[Part, ...]]:
    """Returns the memory of each GPU, and the parts that the host must hold."""
    libraries = library_parts(sizes)
    wanted = (*replay_parts(sizes), *learner_parts(sizes), *libraries)
    least = math.ceil(_sum(wanted) / (1 - GPU_RESERVE) / GIB)
    total = machine.gpu_memory or machine.gpu_memory_least or 0
    reserve = round(total * GPU_RESERVE)
    if _sum(wanted) <= total - reserve:
        granted = "" if machine.gpu_memory else f"assuming the smallest {machine.gpu}"
        return Store(wanted, total, reserve, Fit.FITS, granted), ()
    if machine.gpu_memory is None:
        table = join_key(("clusters", machine.cluster, "gpus", machine.gpu or "gpu"))
        what = f'its name does not tell its memory: set `memory = "...G"` in [{table}]'
        return Store(wanted, None, 0, Fit.UNKNOWN, f"{what}; {least} GiB would be enough"), ()
    layout = sizes.layout
    if layout is None:
        advice = f"choose a GPU with at least {least} GiB, or a smaller recipe"
        return Store(wanted, total, reserve, Fit.TOO_LARGE, advice), ()
    replay = layout.nbytes
    moved = (Part("replay", replay, note="moved here because the GPU is too small for it"),)
    ways = {
        number: (*staged_parts(layout), *learner_parts(sizes, micro_batches=number), *libraries)
        for number in _PARTS
    }
    for number, rest in ways.items():
        if _sum(rest) <= total - reserve:
            steps = f"the replay ({replay / GIB:.1f} GiB) will move to the host's memory"
            if number > 1:
                steps += f", and an update splits its batch into {number} parts"
            advice = f"{steps}: slower, with the same results; a GPU with {least} GiB holds everything"
            return Store(rest, total, reserve, Fit.FALLBACK, advice), moved
    need = math.ceil(min(map(_sum, ways.values())) / (1 - GPU_RESERVE) / GIB)
    advice = f"choose a GPU with at least {need} GiB ({least} GiB for the replay too), or a smaller recipe"
    return Store(wanted, total, reserve, Fit.TOO_LARGE, advice), ()


def _host(parts: tuple[Part, ...], machine: Machine) -> Store:
    total = machine.host_memory
    least = math.ceil(_sum(parts) / (1 - HOST_RESERVE) / GIB)
    setting = f'`memory = "{least}G"`'
    if total is None:
        return Store(parts, None, 0, Fit.UNKNOWN, f"the profile requests none: set {setting}")
    reserve = round(total * HOST_RESERVE)
    if _sum(parts) <= total - reserve:
        return Store(parts, total, reserve, Fit.FITS)
    return Store(
        parts, total, reserve, Fit.TOO_LARGE, f"set {setting} in the profile, or use fewer environments"
    )


def _sum(parts: Sequence[Part]) -> int:
    return sum(part.bytes for part in parts)
