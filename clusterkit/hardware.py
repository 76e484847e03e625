"""A machine's hardware, a run's needs, and the shortages between them. Pure.

For a backend without a queue, where jobs start at once and nothing else refuses impossible requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.units import format_bytes

_SAME_GPU = 0.9
"""Share of a GPU's nominal memory that must be visible: driver and ECC take some."""


@dataclass(frozen=True)
class Hardware:
    """A machine's hardware; None means unknown."""

    cpus: int | None = None
    memory: int | None = None
    """Bytes that programs may use."""
    gpus: tuple[int | None, ...] | None = None
    """The memory of each GPU in bytes."""
    gpu_name: str = ""
    disk: int | None = None
    """Size of the file system of the scratch root, bytes."""
    disk_free: int | None = None

    @property
    def words(self) -> str:
        """The hardware on one line."""
        parts = [f"{self.cpus} CPU{'' if self.cpus == 1 else 's'}" if self.cpus else ""]
        parts.append(f"{format_bytes(self.memory)} memory" if self.memory else "")
        if self.gpus is not None:
            parts.append(f"{len(self.gpus)} {self.gpu_name or 'GPU'}" if self.gpus else "no GPU")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class HardwareNeed:
    """A run's needs."""

    cpus: int = 1
    memory: int | None = None
    gpus: int = 0
    gpu: str = ""
    """The GPU type in the profile."""
    gpu_memory: int | None = None
    """Memory of each GPU of that type, bytes."""
    without_gpu: bool = True
    """Whether it can run on CPUs without a GPU."""
    scratch: int | None = None


@dataclass(frozen=True)
class Shortage:
    """A resource of which a machine has less than a run requests."""

    asked: str
    there: str
    never: bool
    """Whether the run cannot work at all; otherwise it starts, and may be slower or run out."""
    then: str = ""
    """The consequence."""

    def __str__(self) -> str:
        return f"{self.asked} asked for, {self.there}" + (f": {self.then}" if self.then else "")


def shortages(has: Hardware, need: HardwareNeed) -> tuple[Shortage, ...]:
    """Requested resources that the machine lacks, the worst first.

    Only a missing GPU, or a disk that is too small even when empty, makes a run impossible. A run that
    requests too many processors or too much memory shares what there is, and may need less.
    """
    found = [*_gpus(has, need), *_disk(has, need)]
    if has.memory is not None and need.memory is not None and need.memory > has.memory:
        then = "it starts, and is killed if it needs more"
        found.append(
            Shortage(f"{format_bytes(need.memory)} memory", f"{format_bytes(has.memory)} there", False, then)
        )
    if has.cpus is not None and need.cpus > has.cpus:
        found.append(Shortage(f"{need.cpus} CPUs", f"{has.cpus} there", False, "it is slower"))
    return tuple(sorted(found, key=lambda one: not one.never))


def _gpus(has: Hardware, need: HardwareNeed) -> list[Shortage]:
    if not need.gpus or has.gpus is None:
        return []
    named = f"{need.gpus} {need.gpu or 'GPU'}"
    if len(has.gpus) < need.gpus:
        then = "it computes on the processors" if need.without_gpu and not has.gpus else ""
        there = f"{len(has.gpus)} there" if has.gpus else "no GPU there"
        return [Shortage(named, there, not then, then)]
    least = min((memory for memory in has.gpus if memory is not None), default=None)
    if least is not None and need.gpu_memory is not None and least < need.gpu_memory * _SAME_GPU:
        there = f"{has.gpu_name or 'a GPU'} with {format_bytes(least)} there"
        return [Shortage(f"{named} with {format_bytes(need.gpu_memory)}", there, False, "it may not fit")]
    return []


def _disk(has: Hardware, need: HardwareNeed) -> list[Shortage]:
    if need.scratch is None:
        return []
    asked = f"{format_bytes(need.scratch)} scratch"
    if has.disk is not None and need.scratch > has.disk:
        return [Shortage(asked, f"a disk of {format_bytes(has.disk)} there", True)]
    if has.disk_free is not None and need.scratch > has.disk_free:
        return [Shortage(asked, f"{format_bytes(has.disk_free)} free", False, "it may run out of room")]
    return []
