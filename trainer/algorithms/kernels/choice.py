"""Which kernels a device has for a run: for updates with explicit gradients, and for batches of a replay.

What is found out about a device is kept for all learners of a process.
"""

from __future__ import annotations

from functools import cache

import torch

from trainer.algorithms.kernels.operations import Constants, Operations
from trainer.replay.draw import BatchSampler

_NOT_HIP = "they are compiled for the GPUs of NVIDIA only, and PyTorch is a build for ROCm"


@cache
def on_device(device: torch.device, constants: Constants) -> tuple[Operations | None, str]:
    """Returns a GPU's operations and what to tell of them, once each has computed what PyTorch computes.

    None on a processor; and where there are no kernels, with the reason.
    """
    if device.type != "cuda":
        return None, ""
    if torch.version.hip is not None:
        return None, f"updates do without kernels: {_NOT_HIP}"
    from trainer.algorithms.kernels.check import check
    from trainer.algorithms.kernels.cuda import operations
    from trainer.algorithms.kernels.launch import loaded
    from trainer.algorithms.kernels.nvrtc import KernelError
    from trainer.algorithms.kernels.plain import plain

    try:
        kernels = loaded(device)
        found = operations(kernels, constants)
        check(found, plain(constants), device)
    except KernelError as error:
        return None, f"updates do without kernels, which makes them slower: {error}"
    return found, f"updates are computed by kernels of {kernels.name}"


@cache
def sampler_on(device: torch.device) -> tuple[BatchSampler | None, str]:
    """Returns a GPU's sampler and what to tell of it, once it has drawn there what PyTorch draws.

    None on a processor; and where there are no kernels, with the reason.
    """
    if device.type != "cuda":
        return None, ""
    if torch.version.hip is not None:
        return None, f"batches are drawn without a kernel: {_NOT_HIP}"
    from trainer.algorithms.kernels.launch import loaded
    from trainer.algorithms.kernels.nvrtc import KernelError
    from trainer.algorithms.kernels.sampling import check_sampler, sampler_of

    try:
        kernels = loaded(device)
        found = sampler_of(kernels)
        check_sampler(found, device)
    except KernelError as error:
        return None, f"batches are drawn without a kernel, which makes updates slower: {error}"
    return found, f"batches are drawn by a kernel of {kernels.name}"
