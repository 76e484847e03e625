"""Runs the kernels on the processor: the same sources, compiled by g++ with `emulator.h` for CUDA."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from trainer.algorithms.kernels.launch import Argument, Extent, pack
from trainer.algorithms.kernels.nvrtc import SOURCES

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\d+)\))?\s*(\w+)\(')
_REAL = {torch.float32: "float", torch.float64: "double"}
_NAMES = {torch.float32: "float", torch.float64: "double", torch.int64: "long long", torch.int32: "int"}


class EmulationError(Exception):
    """A kernel does what a GPU would not forgive, or not tell of."""


class Emulator:
    """A launcher of the kernels of some sources, see `trainer.algorithms.kernels.launch.Launcher`.

    Args:
        folder: for what is compiled.
        dtype: of the numbers.
        sources: folder of the kernels.

    Attributes:
        kernels: how many threads a block of each may have.
        library: what was compiled.
        seed: of the order of blocks and threads, another one each time.
        launched: names of the kernels that have run, and how often.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, sources: Path = SOURCES) -> None:
        files = sorted(sources.glob("*.cu"))
        self.kernels = {
            name: int(bound or 1024) for path in files for bound, name in _KERNEL.findall(path.read_text())
        }
        lines = ['#include "emulator.h"', *(f'#include "{path}"' for path in files)]
        lines += ["REAL memory[(emulator::ROOM + emulator::RIM) / sizeof(REAL)];"]
        lines += [f"EMULATED({name})" for name in self.kernels]
        program = folder / "kernels.cpp"
        self.library = folder / f"kernels_{_REAL[dtype]}.so"
        program.write_text("\n".join(lines) + "\n")
        command = [
            "g++",
            "-std=c++17",
            "-O1",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-Werror",
            "-Wl,-Bsymbolic",
        ]
        command += [f"-DREAL={_REAL[dtype]}", f"-I{Path(__file__).parent}", f"-I{sources}"]
        subprocess.run([*command, "-o", self.library, program], check=True)
        self._library = ctypes.CDLL(str(self.library))
        self.seed = 0
        self.launched: dict[str, int] = {}

    def __call__(
        self, name: str, grid: Extent, block: Extent, arguments: Sequence[Argument], shared: int = 0
    ) -> None:
        """Runs a kernel.

        Raises:
            EmulationError: arguments or extents do not fit it, or it did wrong.
        """
        assert all(type(number) is int and number > 0 for number in (*grid, *block)), (grid, block)
        if max(grid[1:]) > 65535 or block[0] * block[1] * block[2] > self.kernels[name]:
            raise EmulationError(f"{name}: extents {grid}, {block}")
        self._compare(name, arguments)
        packed = pack(arguments)
        places = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
        run = getattr(self._library, f"run_{name}")
        run.restype = ctypes.c_char_p
        extents = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
        self.seed += 1
        fault = run(places, *extents, ctypes.c_size_t(shared), ctypes.c_uint(self.seed)).decode()
        if fault:
            raise EmulationError(f"{name}: {fault}")
        self.launched[name] = self.launched.get(name, 0) + 1

    def _compare(self, name: str, arguments: Sequence[Argument]) -> None:
        parameters = getattr(self._library, f"parameters_{name}")
        parameters.restype = ctypes.c_char_p
        wanted = parameters().decode().split(",")
        given = [_kind(argument) for argument in arguments]
        fits = len(given) == len([kind for kind in wanted if kind]) and all(
            own == kind or (kind.endswith("*") and own == "none") or (kind == "void*" and own.endswith("*"))
            for own, kind in zip(given, wanted, strict=False)
        )
        if not fits:
            raise EmulationError(f"{name}: takes {wanted}, was given {given}")


def _kind(argument: Argument) -> str:
    if isinstance(argument, Tensor):
        return f"{_NAMES[argument.dtype]}*"
    return "none" if argument is None else "double" if isinstance(argument, float) else "int"
