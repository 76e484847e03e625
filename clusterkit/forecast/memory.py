"""Whether a run fits the memory of its GPU and of its node, and what to do where it does not. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.recipe.memory import (
    Part,
    host_parts,
    learner_parts,
    library_parts,
    replay_parts,
    staged_parts,
)
from trainer.recipe.sizes import Sizes

GPU_RESERVE = 0.08
"""Of the size on a GPU's box: what driver and ECC keep (an A40 of 48 GB shows 45 GiB), and fragmentation."""
HOST_RESERVE = 0.1
"""Python's heaps, pipes, and what the programs around the run take."""
_PARTS = (1, 2, 4, 8, 16)
"""Parts of a batch that a full GPU makes the trainer try."""
_GIB = 2**30


class Fit(StrEnum):
    """Whether it fits."""

    FITS = "fits"
    LADDER = "ladder"
    """The trainer makes it fit: the replay goes to the host, a batch is computed in parts."""
    TOO_LARGE = "too large"
    UNKNOWN = "unknown"
    """How much there is, is not known."""


@dataclass(frozen=True)
class Store:
    """One memory: what goes into it, and how much it holds."""

    parts: tuple[Part, ...]
    available: int | None
    """Bytes; None is not known."""
    reserve: int
    """Of these, what is left alone."""
    fit: Fit
    advice: str = ""
    """What will happen, or what to do; where it fits, what was taken for granted, if anything was."""

    @property
    def needed(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Memory:
    """Of one run."""

    gpu: Store | None
    """Of each, where there are several; None without a GPU."""
    host: Store


@dataclass(frozen=True)
class Machine:
    """What a profile asks for, on a cluster."""

    processors: int
    host_memory: int | None
    gpu: str | None
    """Its type; None without a GPU."""
    gpu_memory: int | None
    """Bytes; None is not known."""
    cluster: str
    gpu_memory_least: int | None = None
    """Where it is not known: what the smallest card of that name has."""


def judge(sizes: Sizes, machine: Machine, workers: int | None, episodes: int | None) -> Memory:
    """Where everything goes, and whether it fits.

    Args:
        sizes: of the run.
        machine: what it gets.
        workers: environment processes; None as the trainer chooses.
        episodes: a task of an evaluation; None is the recipe's.
    """
    processes = host_parts(sizes, machine.processors, workers, episodes=episodes)
    if not sizes.on_gpu:
        own = _of_all(sizes, (*replay_parts(sizes), *learner_parts(sizes)))
        return Memory(None, _host((*processes, *own), machine))
    gpu, moved = _gpu(sizes, machine)
    return Memory(gpu, _host((*processes, *_of_all(sizes, moved)), machine))


def _of_all(sizes: Sizes, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What each rank has, of all ranks together: they share a node."""
    return tuple(replace(part, bytes=sizes.ranks * part.bytes) for part in parts)


def _gpu(sizes: Sizes, machine: Machine) -> tuple[Store, tuple[Part, ...]]:
    """The memory of each GPU, and what of it the host must take."""
    libraries = library_parts(sizes)
    wanted = (*replay_parts(sizes), *learner_parts(sizes), *libraries)
    least = math.ceil(_sum(wanted) / (1 - GPU_RESERVE) / _GIB)
    total = machine.gpu_memory or machine.gpu_memory_least or 0
    reserve = round(total * GPU_RESERVE)
    if _sum(wanted) <= total - reserve:
        granted = "" if machine.gpu_memory else f"reckoned with the smallest {machine.gpu}"
        return Store(wanted, total, reserve, Fit.FITS, granted), ()
    if machine.gpu_memory is None:
        what = f"set `memory` of [clusters.{machine.cluster}.gpus.{machine.gpu}] to know whether it fits"
        return Store(wanted, None, 0, Fit.UNKNOWN, f"{what}; {least} GiB would do"), ()
    if sizes.on_policy:
        advice = f"choose a GPU with {least} GiB at least, or a smaller recipe"
        return Store(wanted, total, reserve, Fit.TOO_LARGE, advice), ()
    replay = sizes.layout.nbytes
    moved = (Part("replay", replay, note="moved here, for the GPU is too small for it"),)
    for number in _PARTS:
        rest = (*staged_parts(sizes), *learner_parts(sizes, micro_batches=number), *libraries)
        if _sum(rest) <= total - reserve:
            steps = f"the replay ({replay / _GIB:.1f} GiB) will move to the host's memory"
            if number > 1:
                steps += f", and an update takes its batch in {number} parts"
            advice = f"{steps}: slower, with the same numbers; a GPU with {least} GiB holds all of it"
            return Store(rest, total, reserve, Fit.LADDER, advice), moved
    smallest = min((_smallest(sizes, number, libraries) for number in _PARTS), default=0)
    need = math.ceil(smallest / (1 - GPU_RESERVE) / _GIB)
    advice = f"choose a GPU with {need} GiB at least ({least} GiB hold the replay too), or a smaller recipe"
    return Store(wanted, total, reserve, Fit.TOO_LARGE, advice), ()


def _smallest(sizes: Sizes, parts: int, libraries: Sequence[Part]) -> int:
    return _sum((*staged_parts(sizes), *learner_parts(sizes, micro_batches=parts), *libraries))


def _host(parts: tuple[Part, ...], machine: Machine) -> Store:
    total = machine.host_memory
    least = math.ceil(_sum(parts) / (1 - HOST_RESERVE) / _GIB)
    setting = f'`memory = "{least}G"`'
    if total is None:
        return Store(parts, None, 0, Fit.UNKNOWN, f"the profile asks for none: give it {setting}")
    reserve = round(total * HOST_RESERVE)
    if _sum(parts) <= total - reserve:
        return Store(parts, total, reserve, Fit.FITS)
    return Store(parts, total, reserve, Fit.TOO_LARGE, f"give the profile {setting}, or fewer environments")


def _sum(parts: Sequence[Part]) -> int:
    return sum(part.bytes for part in parts)
