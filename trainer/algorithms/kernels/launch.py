"""Loads compiled kernels on a GPU and launches them, by functions of the driver that never change."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.algorithms.kernels.nvrtc import KernelError, compile_kernels

Argument = Tensor | int | float | None
"""What a kernel gets: addresses of tensors, 0 as that of None, int of whole numbers, and double of others."""
Extent = tuple[int, int, int]
DRIVER = "libcuda.so.1"
_NOT_FOUND = 500
"""CUDA_ERROR_NOT_FOUND."""


class Launcher(Protocol):
    """Whatever runs kernels."""

    def __call__(
        self, name: str, grid: Extent, block: Extent, arguments: Sequence[Argument], shared: int = 0
    ) -> None:
        """Runs a kernel.

        Args:
            name: of the kernel.
            grid: blocks in each dimension.
            block: threads of a block in each dimension.
            arguments: of the kernel.
            shared: bytes of shared memory that each block gets.
        """


class Kernels:
    """The kernels on a GPU, launched on PyTorch's current stream: also into a graph that is being captured.

    Args:
        device: the GPU, which has to be the current device whenever a kernel is launched.

    Raises:
        KernelError: the kernels cannot be compiled or loaded.

    Attributes:
        name: of what compiled them, and for what.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        try:
            self._driver = ctypes.CDLL(DRIVER)
        except OSError as error:
            raise KernelError(f"the driver's library cannot be loaded: {error}") from error
        architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
        compiled = _compiled(architecture)
        self.name = f"NVRTC {compiled.version} for {architecture}"
        self._modules = [ctypes.c_void_p() for _ in compiled.binaries]
        self._functions: dict[str, ctypes.c_void_p] = {}
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes the context that the module is loaded into
            for module, binary in zip(self._modules, compiled.binaries, strict=True):
                self._check(self._driver.cuModuleLoadData(ctypes.byref(module), binary))

    def __call__(
        self, name: str, grid: Extent, block: Extent, arguments: Sequence[Argument], shared: int = 0
    ) -> None:
        """Launches a kernel, see `Launcher`. Tensors may be freed as those of PyTorch's own operations may.

        Raises:
            KernelError: the driver refuses.
        """
        packed = pack(arguments)
        places = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        launched = self._driver.cuLaunchKernel(
            self._function(name), *grid, *block, shared, stream, places, None
        )
        self._check(launched)

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            given = [(ctypes.byref(function), module, name.encode()) for module in self._modules]
            results = (self._driver.cuModuleGetFunction(*own) for own in given)
            self._check(next((result for result in results if not result), _NOT_FOUND))
            self._functions[name] = function
        return self._functions[name]

    def _check(self, result: int) -> None:
        if result:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(result, ctypes.byref(text))
            raise KernelError(f"the driver refuses: {(text.value or b'unknown error').decode()}")


_compiled = cache(compile_kernels)
"""Compiles once for each architecture in a process."""
loaded = cache(Kernels)
"""Loads once for each GPU in a process."""


def pack(arguments: Sequence[Argument]) -> list[Any]:
    """Returns arguments as C has them."""
    return [_packed(argument) for argument in arguments]


def _packed(argument: Argument) -> Any:
    if argument is None or isinstance(argument, Tensor):
        return ctypes.c_void_p(0 if argument is None else argument.data_ptr())
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    if not -(2**31) <= argument < 2**31:
        raise OverflowError(f"{argument} is too large for a kernel")
    return ctypes.c_int(argument)
