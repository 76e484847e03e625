"""Which operations a device has for updates with explicit gradients."""

from __future__ import annotations

import torch

from trainer.algorithms.kernels.operations import Constants, Operations


def on_device(device: torch.device, constants: Constants) -> tuple[Operations | None, str]:
    """Returns a GPU's kernels, once each has computed on it what PyTorch computes, and what to tell of them.

    None on a processor; and where there are no kernels, with the reason.
    """
    if device.type != "cuda":
        return None, ""
    from trainer.algorithms.kernels.check import check
    from trainer.algorithms.kernels.cuda import kernels
    from trainer.algorithms.kernels.nvrtc import KernelError
    from trainer.algorithms.kernels.plain import plain

    try:
        found, name = kernels(device, constants)
        check(found, plain(constants), device)
    except KernelError as error:
        return None, f"updates do without kernels, which makes them slower: {error}"
    return found, f"updates are computed by kernels of {name}"
