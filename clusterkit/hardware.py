"""A machine's hardware, a run's needs, the shortages between them, and the GPUs that sites' names mean. Pure.

Shortages matter to a backend without a queue, where jobs start at once and nothing else refuses impossible
requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.units import format_bytes

ARCHITECTURES = ("x86_64", "aarch64", "ppc64le", "s390x", "riscv64")
"""What `uname -m` says of the machines that programs are built for."""
VENDORS = ("nvidia", "amd")
"""The makers of GPUs, the usual one first."""
_SAME_GPU = 0.9
"""Share of a GPU's nominal memory that must be visible: driver and ECC take some."""


def machine_name(text: str) -> str:
    """Returns what Linux calls an architecture that others name differently.

    >>> machine_name("arm64"), machine_name("amd64")
    ('aarch64', 'x86_64')
    """
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(text.lower(), text)


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
        return f"{self.asked} requested, {self.there}" + (f": {self.then}" if self.then else "")


def shortages(has: Hardware, need: HardwareNeed) -> tuple[Shortage, ...]:
    """Requested resources that the machine lacks, the worst first.

    Only a missing GPU, or a disk that is too small even when empty, makes a run impossible. A run that
    requests too many processors or too much memory shares what there is, and may need less.
    """
    found = [*_gpus(has, need), *_disk(has, need)]
    if has.memory is not None and need.memory is not None and need.memory > has.memory:
        asked, there = f"{format_bytes(need.memory)} memory", f"{format_bytes(has.memory)} available"
        found.append(Shortage(asked, there, False, "the run starts, and is killed if it uses more"))
    if has.cpus is not None and need.cpus > has.cpus:
        found.append(Shortage(f"{need.cpus} CPUs", f"{has.cpus} available", False, "the run is slower"))
    return tuple(sorted(found, key=lambda one: not one.never))


def _gpus(has: Hardware, need: HardwareNeed) -> list[Shortage]:
    if not need.gpus or has.gpus is None:
        return []
    named = f"{need.gpus} {need.gpu or 'GPU'}"
    if len(has.gpus) < need.gpus:
        then = "the run trains on the CPUs" if need.without_gpu and not has.gpus else ""
        there = f"{len(has.gpus)} available" if has.gpus else "no GPU available"
        return [Shortage(named, there, not then, then)]
    least = min((memory for memory in has.gpus if memory is not None), default=None)
    if least is not None and need.gpu_memory is not None and least < need.gpu_memory * _SAME_GPU:
        there = f"{has.gpu_name or 'a GPU'} with {format_bytes(least)} available"
        asked = f"{named} with {format_bytes(need.gpu_memory)}"
        return [Shortage(asked, there, False, "the run may not fit")]
    return []


def _disk(has: Hardware, need: HardwareNeed) -> list[Shortage]:
    if need.scratch is None:
        return []
    asked = f"{format_bytes(need.scratch)} scratch"
    if has.disk is not None and need.scratch > has.disk:
        return [Shortage(asked, f"the disk has {format_bytes(has.disk)}", True)]
    if has.disk_free is not None and need.scratch > has.disk_free:
        return [Shortage(asked, f"{format_bytes(has.disk_free)} free", False, "the disk may fill up")]
    return []


_G = 2**30
_NOT_BEFORE, _NOT_AFTER = r"(?<![a-z0-9.])", r"(?![a-z0-9])"

# Memory of AMD's is that of https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html; an MI250 has two
# dies with 64 GiB each, which are two GPUs to the scheduler and the programs. Memory of the others is that of
# NVIDIA's data sheets (https://www.nvidia.com/en-us/data-center/,
# https://www.nvidia.com/en-us/design-visualization/, https://www.nvidia.com/en-us/geforce/graphics-cards/),
# their GB read as Slurm reads G. A card sold with more than one size (A100, V100, P100, RTX 3080, or RTX
# 4070, which has less in laptops) has none in the table: the site's own description may tell. A GH200 with
# 96 GB is named by the memory of its processor.
_CARDS: tuple[tuple[str, str, int | None], ...] = (
    # How it is spelled, in lower case with - for every separator; our name; memory in GiB.
    (r"gh-?200-(?:120|240|480)-?gb", "gh200", 96),
    (r"gh-?200", "gh200", None),
    (r"gb-?200", "gb200", None),
    (r"b-?200", "b200", 180),
    (r"h-?200(?:-?nvl)?", "h200", 141),
    (r"h-?100-?nvl", "h100-nvl", 94),
    (r"h-?100", "h100", 80),
    (r"a-?100l?", "a100", None),
    (r"a-?40", "a40", 48),
    (r"a-?30", "a30", 24),
    (r"a-?10g?", "a10", 24),
    (r"a-?16", "a16", 16),
    (r"a2", "a2", 16),
    (r"l-?40s", "l40s", 48),
    (r"l-?40", "l40", 48),
    (r"l4", "l4", 24),
    (r"v-?100s?", "v100", None),
    (r"p-?100", "p100", None),
    (r"p-?40", "p40", 24),
    (r"t4", "t4", 16),
    (r"k-?80", "k80", 12),
    (r"(?:rtx-?)?a-?6000", "a6000", 48),
    (r"(?:rtx-?)?a-?5000", "a5000", 24),
    (r"(?:rtx-?)?a-?4500", "a4500", 20),
    (r"(?:rtx-?)?a-?4000", "a4000", 16),
    (r"rtx-?pro-?6000(?:-?blackwell(?:-max-?q)?)?", "rtxpro6000", 96),
    (r"rtx-?6000-?ada", "rtx6000ada", 48),
    (r"rtx-?5000-?ada", "rtx5000ada", 32),
    (r"(?:quadro-)?rtx-?8000", "rtx8000", 48),
    (r"(?:quadro-)?rtx-?6000", "rtx6000", None),
    (r"(?:quadro-)?rtx-?5000", "rtx5000", 16),
    (r"titan-?rtx", "titanrtx", 24),
    (r"titan-?v", "titanv", 12),
    (r"titan-?xp?", "titanxp", 12),
    (r"(?:rtx-?)?5090", "rtx5090", 32),
    (r"(?:rtx-?)?5080", "rtx5080", 16),
    (r"(?:rtx-?)?4090", "rtx4090", 24),
    (r"(?:rtx-?)?4080(?:-?super)?", "rtx4080", 16),
    (r"(?:rtx-?)?4070(?:-?super)?", "rtx4070", None),
    (r"(?:rtx-?)?4060", "rtx4060", 8),
    (r"(?:rtx-?)?3090(?:-?ti)?", "rtx3090", 24),
    (r"(?:rtx-?)?3080-?ti", "rtx3080ti", 12),
    (r"(?:rtx-?)?3080", "rtx3080", None),
    (r"(?:rtx-?)?3070(?:-?ti)?", "rtx3070", 8),
    (r"(?:rtx-?)?2080-?ti", "rtx2080ti", 11),
    (r"(?:rtx-?)?2080(?:-?super)?", "rtx2080", 8),
    (r"(?:gtx-?)?1080-?ti", "gtx1080ti", 11),
    (r"(?:gtx-?)?1080", "gtx1080", 8),
    (r"mi-?100", "mi100", 32),
    (r"mi-?210", "mi210", 64),
    (r"mi-?250", "mi250", 64),
    (r"mi-?250x", "mi250x", 64),
    (r"mi-?300a", "mi300a", 128),
    (r"mi-?300x", "mi300x", 192),
    (r"mi-?300", "mi300", None),
    (r"mi-?325x?", "mi325x", 256),
    (r"mi-?350x", "mi350x", 288),
    (r"mi-?355x", "mi355x", 288),
)
_SIZES = {
    "a100": (40, 64, 80),
    "b200": (180, 192),
    "h100": (64, 80, 94, 96),
    "v100": (16, 32),
    "p100": (12, 16),
    "gh200": (96, 144),
    "mi300": (128, 192),
    "rtx3080": (10, 12),
    "rtx4070": (8, 12),
    "rtx6000": (24, 48),
}
"""All memory sizes, GiB, of cards that are made with more than one."""
_BUILD = r"(?:sxm|pcie|hbm)\d?[a-z]?"
"""A card's socket or kind of memory."""
_PATTERNS = tuple(
    (re.compile(f"{_NOT_BEFORE}{spelled}(?:-?{_BUILD})?{_NOT_AFTER}"), name, memory)
    for spelled, name, memory in _CARDS
)
_SIZE = re.compile(rf"{_NOT_BEFORE}(\d{{1,3}})-?gi?b?{_NOT_AFTER}")
_EXPLAINED = re.compile(rf"{_SIZE.pattern}|{_NOT_BEFORE}{_BUILD}{_NOT_AFTER}")
_OTHER = re.compile(r"\d|\b(?:[cdq]px|mig|vgpu|grid|half|slice|shard|ti|super|laptop|mobile|max-?q)\b")
"""What makes it a part of the card, or another card."""
_SLICE = re.compile(r"(?<![a-z0-9])[0-9]g-?\.?([0-9]{1,6})gb")
"""A slice (MIG): 3g.20gb."""
_VIRTUAL = re.compile(
    rf"{_NOT_BEFORE}(?:{'|'.join(card[0] for card in _CARDS)})(?:-?[a-z]{{1,2}})?"
    rf"-(?:\d-)?(\d{{1,2}})[abcq](?:4|me)?{_NOT_AFTER}"
)
"""A virtual GPU (https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/): A40-12Q, A100D-1-10C."""


def recognise(text: str) -> tuple[str, int | None] | None:
    """The card that a site's name means, and its memory in bytes if the name or the card determines it.

    A number beside the card's name is its memory if it has a unit and the card is made with that much. With
    any other number the name means something else: a slice of the card (MIG), a virtual GPU, half a card.

    >>> recognise("nvidia_a100-sxm4-80gb")
    ('a100', 85899345920)
    >>> recognise("a100-20")
    """
    plain = _plain(text)
    if slice_memory(text) is not None:
        return None
    for pattern, name, memory in _PATTERNS:
        if match := pattern.search(plain):
            beside = f"{plain[: match.start()]} {plain[match.end() :]}"
            told = {int(size) for size in _SIZE.findall(beside)}
            if _OTHER.search(_EXPLAINED.sub(" ", beside)) or not told.issubset(sizes_of(name) or (memory,)):
                return None
            size = max(told, default=memory)
            return None if len(told) > 1 else (name, None if size is None else size * _G)
    return None


_AMD = re.compile(rf"{_NOT_BEFORE}(?:mi-?\d{{2,3}}[ax]?|amd|instinct|radeon|gfx\d+[a-z]?){_NOT_AFTER}")


def vendor_of(text: str) -> str:
    """Returns the maker that a GPU type means, one of `VENDORS`.

    >>> vendor_of("amd_instinct_mi250x"), vendor_of("a100")
    ('amd', 'nvidia')
    """
    return "amd" if _AMD.search(_plain(text)) else "nvidia"


def slice_memory(text: str) -> int | None:
    """Bytes of a slice such as `a100_3g.20gb` or a virtual GPU such as `A40-12Q`; None for anything else."""
    plain = _plain(text)
    match = _SLICE.search(plain) or _VIRTUAL.search(plain)
    return int(match[1]) * _G if match else None


def sizes_of(name: str) -> tuple[int, ...]:
    """The memory sizes, GiB, of cards with this name, if there are several."""
    return _SIZES.get(name, ())


def memory_of(text: str) -> int | None:
    """Bytes of the card or slice that a GPU type means; None if ambiguous."""
    known = recognise(text)
    return slice_memory(text) or (known[1] if known else None)


def least_memory_of(text: str) -> int | None:
    """Bytes of the smallest card that a GPU type may mean; None for an unknown name."""
    known = recognise(text)
    smallest = min(sizes_of(known[0]), default=None) if known else None
    return memory_of(text) or (None if smallest is None else smallest * _G)


def _plain(text: str) -> str:
    return re.sub(r"[ _:/-]+", "-", text.lower())
