"""Compiles the kernels for a GPU with NVRTC: without a toolkit, a host compiler or the GPU itself.

PyTorch's CUDA builds bring the library with them, as a package of its own.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

SOURCES = Path(__file__).parent


class KernelError(RuntimeError):
    """Kernels cannot be compiled, loaded, launched or trusted here; says why."""


class Compiled(NamedTuple):
    """What became of the sources.

    Attributes:
        version: of NVRTC.
        binaries: for the driver to load, one for each source.
    """

    version: str
    binaries: list[bytes]


def compile_kernels(architecture: str, options: Sequence[str] = ()) -> Compiled:
    """Compiles the sources of this folder, all at the same time.

    Args:
        architecture: of the GPU, such as `sm_90`.
        options: further ones of NVRTC.

    Raises:
        KernelError: there is no NVRTC, it does not know the architecture, refuses a source or crashes.
    """
    how = [",".join(libraries()), f"--gpu-architecture={architecture}", "-DREAL=float", *options]
    sources = sorted(SOURCES.glob("*.cu"))
    compilers = [_start([str(source), *how]) for source in sources]
    outputs = [compiler.communicate() for compiler in compilers]
    for compiler, source, (_, told) in zip(compilers, sources, outputs, strict=True):
        if compiler.returncode:
            reason = told.decode(errors="replace").strip() or f"exit {compiler.returncode}"
            raise KernelError(f"{source.name} does not compile for {architecture}: {reason}")
    parts = [output.partition(b"\n") for output, _ in outputs]
    return Compiled(parts[0][0].decode(), [binary for _, _, binary in parts])


def libraries() -> list[str]:
    """Returns where NVRTC may be, the one that fits PyTorch's version of CUDA first."""
    major = (torch.version.cuda or "").partition(".")[0]
    return [*map(str, _packaged(major)), f"libnvrtc.so.{major}" if major else "libnvrtc.so"]


def _packaged(major: str) -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(folder).glob(f"*/lib/libnvrtc.so.{major or '*'}"))


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-I", str(SOURCES / "compiler.py"), *arguments]
    return subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
