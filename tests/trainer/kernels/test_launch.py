"""Kernels go to the driver as it wants them: to one that has the emulator for a GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.trainer.kernels.emulator import Emulator
from tests.trainer.kernels.test_kernels import CONSTANTS, CPU
from trainer.algorithms.kernels import launch
from trainer.algorithms.kernels.check import check
from trainer.algorithms.kernels.choice import on_device, sampler_on
from trainer.algorithms.kernels.cuda import operations
from trainer.algorithms.kernels.launch import Kernels
from trainer.algorithms.kernels.nvrtc import Compiled, KernelError
from trainer.algorithms.kernels.plain import plain
from trainer.algorithms.kernels.sampling import check_sampler, sampler_of

pytestmark = [pytest.mark.xdist_group("kernels"), pytest.mark.slow]
DRIVER = r"""
#include <dlfcn.h>
#include <string>
using Run = const char* (*)(void**, const unsigned*, const unsigned*, std::size_t, unsigned);
extern "C" int cuModuleLoadData(void** module, const char* path) {
  *module = dlopen(path, RTLD_NOW);
  return *module ? 0 : 200;
}
extern "C" int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string("run_") + name).c_str());
  return *function ? 0 : 500;
}
extern "C" int cuLaunchKernel(
    Run run, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y, unsigned z, unsigned shared,
    void* stream, void** arguments, void** extra) {
  if (stream != (void*)0x123456789a || extra) return 400;
  const unsigned grid[] = {a, b, c}, block[] = {x, y, z};
  return *run(arguments, grid, block, shared, 1) ? 719 : 0;
}
extern "C" int cuGetErrorString(int code, const char** text) {
  *text = code == 500 ? "named symbol not found" : "launch failure";
  return 0;
}
"""


@pytest.fixture
def driver(
    emulated: Callable[[torch.dtype], Emulator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.cpp").write_text(DRIVER)
    library = tmp_path / "driver.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "driver.cpp", "-ldl"], check=True)
    monkeypatch.setattr(launch, "DRIVER", str(library))
    others = [str(library).encode() + b"\0"]
    binary = str(emulated(torch.float32).library).encode() + b"\0"
    monkeypatch.setattr(
        launch, "_compiled", lambda architecture: Compiled("13.0", [*others, binary, *others])
    )
    replaced = {
        "get_device_capability": lambda _: (9, 0),
        "device": lambda _: nullcontext(),
        "synchronize": lambda: None,
        "current_stream": lambda _: SimpleNamespace(cuda_stream=0x123456789A),
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.mark.usefixtures("driver")
def test_what_is_launched_computes() -> None:
    kernels = Kernels(CPU)
    check(operations(kernels, CONSTANTS), plain(CONSTANTS), CPU)
    check_sampler(sampler_of(kernels), CPU)
    assert kernels.name == "NVRTC 13.0 for sm_90"


@pytest.mark.usefixtures("driver")
def test_what_the_driver_refuses_is_an_error_that_says_why() -> None:
    kernels = Kernels(CPU)
    with pytest.raises(KernelError, match="the driver refuses: named symbol not found"):
        kernels("no_such", (1, 1, 1), (1, 1, 1), [])
    with pytest.raises(KernelError, match="the driver refuses: launch failure"):
        kernels("polyak", (1, 1, 1), (32, 1, 1), [None, torch.zeros(1), 0.5], 1_000_000)
    with pytest.raises(OverflowError, match="4294967296 is too large for a kernel"):
        kernels("polyak", (1, 1, 1), (32, 1, 1), [2**32])


def test_without_a_driver_a_run_goes_on_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "DRIVER", "no such driver")
    device = torch.device("cuda", 99)  # of no other test, for what is found out is kept
    (found, remark), (sampler, told) = on_device(device, CONSTANTS), sampler_on(device)
    assert found is None
    assert remark.startswith("updates do without kernels, which makes them slower: the driver's library")
    assert sampler is None
    assert told.startswith("batches are drawn without a kernel, which makes updates slower: the driver's")


def test_a_device_is_asked_once_in_a_process() -> None:
    asked = [(on_device(CPU, CONSTANTS), sampler_on(CPU)) for _ in range(2)]
    assert asked[0][0] is asked[1][0]
    assert asked[0][1] is asked[1][1]
