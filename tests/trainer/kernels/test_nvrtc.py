"""The kernels compile for every GPU of the last years, and a run goes on where they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.algorithms.kernels import nvrtc
from trainer.algorithms.kernels.nvrtc import KernelError, compile_kernels

STRICT = ["--warn-on-spills", "--warn-on-local-memory-usage", "--warning-as-error"]


@pytest.mark.slow
@pytest.mark.needs("NVRTC")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_kernels_compile_and_need_no_memory_for_registers(architecture: str) -> None:
    compiled = compile_kernels(architecture, [f"--ptxas-options={option}" for option in STRICT])
    assert len(compiled.binaries) == len(list(nvrtc.SOURCES.glob("*.cu")))
    assert all(binary.startswith(b"\x7fELF") for binary in compiled.binaries)


@pytest.mark.needs("NVRTC")
def test_an_architecture_that_nvrtc_does_not_know_is_told_of() -> None:
    with pytest.raises(KernelError, match=r"inputs\.cu does not compile for sm_33: nvrtc: error"):
        compile_kernels("sm_33")


def test_without_nvrtc_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "libraries", lambda: ["libnvrtc.so.none"])
    with pytest.raises(KernelError, match=r"NVRTC cannot be loaded: libnvrtc\.so\.none: cannot open"):
        compile_kernels("sm_90")


def test_a_compiler_that_crashes_is_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.cu").touch()
    (tmp_path / "compiler.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(nvrtc, "SOURCES", tmp_path)
    with pytest.raises(KernelError, match=r"one\.cu does not compile for sm_90: exit -11"):
        compile_kernels("sm_90")
