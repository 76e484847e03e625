"""The device a run computes on: its choice, precision, threads, seeds and description."""

from __future__ import annotations

import contextlib
import os
import platform
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from trainer.errors import TrainerError
from trainer.machine.processors import processor_name
from trainer.machine.waiting import sleep_when_crowded
from trainer.ranks.place import ALONE, RankPlace

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "fp32", "tf32", "bf16")


class DeviceError(TrainerError):
    """The device or the precision asked for is not to be had here."""


def configure(
    device: str = "auto",
    precision: str = "auto",
    threads: int | Callable[[str], int] = 0,
    place: RankPlace = ALONE,
) -> torch.device:
    """Chooses the device and sets the process-wide precision, threads and determinism.

    To be called before anything computes on a GPU. What the trainer computes there is then the same on every
    run on the same machine: it uses no operation that adds up in any order.

    Args:
        device: `cpu`, `cuda`, or `auto`, which takes CUDA where there is one.
        precision: of matrix products: `fp32`; `tf32` (10 bits of mantissa; plain fp32 off CUDA); `bf16` (see
            `autocast`; products outside it are TF32 on CUDA); or `auto`, see `precision_on`.
        threads: of PyTorch on the CPU, or what tells them by the kind of the device that is chosen; 0 leaves
            PyTorch's own choice.
        place: of this process among those that learn together, each of which takes another GPU.

    Returns:
        The device with its index, so that tensors made on it compare equal.

    Raises:
        DeviceError: CUDA is requested and absent, there are fewer GPUs than processes, or the device does not
            compute in bfloat16 natively.
        ValueError: an unknown device or precision, or a negative number of threads.
    """
    if device not in DEVICES or precision not in PRECISIONS:
        raise ValueError(f"no such setting: device {device!r}, precision {precision!r}")
    # cuBLAS computes the same on every run only with workspaces of fixed sizes, and reads this when it starts
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        remedy = "check nvidia-smi, CUDA_VISIBLE_DEVICES and apptainer's --nv"
        if torch.version.hip is not None:
            remedy = "check rocm-smi, ROCR_VISIBLE_DEVICES, the access to /dev/kfd and apptainer's --rocm"
        elif torch.version.cuda is None:
            remedy = "install a CUDA build of PyTorch, this one has none"
        raise DeviceError(
            f"CUDA is requested, but PyTorch {torch.__version__} sees no GPU",
            hint=f"{remedy}; or use --device cpu",
        )
    if cuda and device != "cpu":
        if place.size > 1:
            torch.cuda.set_device(_own_gpu(place))
        chosen = torch.device("cuda", torch.cuda.current_device())
    else:
        chosen = torch.device("cpu")
    if precision == "bf16" and not has_bf16(chosen):
        raise DeviceError(
            f"{device_name(chosen)} does not support bfloat16", hint="use --precision fp32 or tf32"
        )
    # newer processors have a TF32 of their own
    rounded = chosen.type == "cuda" and precision_on(chosen, precision) != "fp32"
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    torch.backends.cudnn.allow_tf32 = rounded
    count = threads if isinstance(threads, int) else threads(chosen.type)
    if count < 0:
        raise ValueError(f"no such setting: {count} threads")
    if count:
        torch.set_num_threads(count)
    sleep_when_crowded()
    return chosen


def precision_on(device: torch.device, precision: str) -> str:
    """Returns the precision that a run has: of `auto`, TF32 on a GPU and fp32 elsewhere.

    TF32 is what JAX, and so the paper's code, takes on a GPU where nobody says; PyTorch takes fp32.
    """
    if precision != "auto":
        return precision
    return "tf32" if device.type == "cuda" else "fp32"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Returns a fresh context in which layers compute in bfloat16, or one that changes nothing.

    Weights, gradients and optimiser state stay float32; bfloat16 has float32's range, so no loss is scaled.
    """
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


_OUT_OF_MEMORY = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
    "CUDA error: out of memory",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "HIP error: out of memory",
)
"""How their libraries, and a graph that is instantiated, say what PyTorch's allocator has a class for."""


def raise_memory_fault(error: RuntimeError) -> None:
    """Raises `torch.OutOfMemoryError` if that is what an error says: that a device's memory is full."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if any(spelling in str(error) for spelling in _OUT_OF_MEMORY):
        raise torch.OutOfMemoryError(str(error)) from error


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seeds Python, NumPy and PyTorch (all devices); environments have generators of their own.

    Args:
        seed: 0 or more, below 2**32 (NumPy's limit).
        rank: of this process: each draws other numbers.
    """
    if rank:
        seed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def device_name(device: torch.device) -> str:
    """Returns the GPU's name, or the processor's as far as the operating system tells it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()


def known_as(device: torch.device) -> str | None:
    """Returns what NVML knows a GPU by, its UUID, or AMD SMI, its PCI address; None of a processor."""
    if device.type != "cuda":
        return None
    gpu: Any = torch.cuda.get_device_properties(device)
    if torch.version.hip is None:
        return str(gpu.uuid)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def describe(device: torch.device) -> dict[str, Any]:
    """Returns what a report needs to name the device: plain JSON types, memory in bytes.

    Keys: `type`, `name`; `memory_bytes`, `capability` (such as `8.6`) and `uuid` (as NVML spells it) of a GPU
    or null; `threads`, `torch`, `cuda`, `hip`, `cudnn`, `python`.
    """
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return {
        "type": device.type,
        "name": device_name(device),
        "memory_bytes": gpu.total_memory if gpu else None,
        "capability": f"{gpu.major}.{gpu.minor}" if gpu else None,
        "uuid": f"GPU-{gpu.uuid}" if gpu else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if gpu else None,  # type: ignore[no-untyped-call]
        "python": platform.python_version(),
    }


def _own_gpu(place: RankPlace) -> int:
    count = torch.cuda.device_count()
    if place.bound and count == 1:  # the scheduler shows each process nothing but its own
        return 0
    if place.local_rank >= count:
        raise DeviceError(
            f"{place.local_rank + 1} processes of this node want a GPU each, and PyTorch sees {count}",
            hint="request as many GPUs as --ranks says, or use fewer ranks",
        )
    return place.local_rank


def has_bf16(device: torch.device) -> bool:
    """Tells whether a device computes in bfloat16 natively."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # PyTorch can emulate it on any CPU, several times slower than float32: that is never what was meant.
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
