from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trainer.algorithms import pieces
from trainer.algorithms.kernels.choice import on_device, sampler_on
from trainer.algorithms.kernels.operations import Constants
from trainer.machine import device
from trainer.machine.device import DeviceError


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    tf32 = torch.backends.cudnn.allow_tf32
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = tf32


def test_the_cpu_with_threads() -> None:
    assert device.configure("cpu", threads=2) == torch.device("cpu")
    assert torch.get_num_threads() == 2
    device.configure("cpu")
    assert torch.get_num_threads() == 2


def test_products_are_tf32_on_a_gpu_and_fp32_elsewhere_unless_somebody_says() -> None:
    places = torch.device("cuda", 0), torch.device("cpu")
    assert [device.precision_on(place, "auto") for place in places] == ["tf32", "fp32"]
    assert [device.precision_on(place, "bf16") for place in places] == ["bf16", "bf16"]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_tf32_is_set_for_the_process_and_for_gpus_only(precision: str) -> None:
    chosen = device.configure("auto", precision)
    rounded = precision == "tf32" and chosen.type == "cuda"
    assert torch.get_float32_matmul_precision() == ("high" if rounded else "highest")
    assert torch.backends.cudnn.allow_tf32 is rounded
    device.configure("cpu", precision)
    assert torch.get_float32_matmul_precision() == "highest"


def test_cublas_gets_its_fixed_workspaces_unless_the_user_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    device.configure("cpu")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    device.configure("cpu")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_auto_takes_cuda_where_there_is_one() -> None:
    assert device.configure("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match="sees no GPU") as caught:
        device.configure("cuda")
    assert "--device cpu" in (caught.value.hint or "")


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch as a build for ROCm describes itself."""
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(torch.version, "cuda", None)


@pytest.mark.usefixtures("rocm")
def test_with_rocm_a_run_goes_on_without_kernels_and_with_tensors_whole() -> None:
    place = torch.device("cuda", 98)  # of no other test, for what is found out is kept
    constants = Constants(0.97, 2.5, -3.0, False, (-1.5, 1.0), False)
    (found, remark), (sampler, told) = on_device(place, constants), sampler_on(place)
    assert (found, sampler) == (None, None)
    reason = "they are compiled for the GPUs of NVIDIA only, and PyTorch is a build for ROCm"
    assert remark == f"updates do without kernels: {reason}"
    assert told == f"batches are drawn without a kernel: {reason}"
    assert not pieces._launches_are_large()


@pytest.mark.usefixtures("rocm")
def test_a_gpu_of_amd_is_known_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(pci_domain_id=0, pci_bus_id=193, pci_device_id=0, uuid="not asked")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    assert device.known_as(torch.device("cuda", 0)) == "0000:c1:00.0"
    assert device.known_as(torch.device("cpu")) is None


@pytest.mark.usefixtures("rocm")
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_build_for_rocm_that_sees_no_gpu_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match="sees no GPU") as caught:
        device.configure("cuda")
    assert "access to /dev/kfd" in (caught.value.hint or "")
    assert "CUDA build" not in (caught.value.hint or "")


@pytest.mark.parametrize("said", ["HIP error: out of memory", "HIPBLAS_STATUS_ALLOC_FAILED when calling it"])
def test_rocm_says_in_its_own_words_that_memory_is_full(said: str) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        device.raise_memory_fault(RuntimeError(said))


@pytest.mark.parametrize("wrong", [("tpu", "fp32", 0), ("cpu", "fp16", 0), ("cpu", "fp32", -1)])
def test_what_is_no_setting(wrong: tuple[str, str, int]) -> None:
    with pytest.raises(ValueError, match="no such setting"):
        device.configure(*wrong)


def test_bf16_computes_in_bf16_or_is_refused() -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(DeviceError, match="does not support bfloat16"):
            device.configure("cpu", "bf16")
        return
    chosen = device.configure("cpu", "bf16")
    layer = torch.nn.Linear(8, 8)
    with device.autocast(chosen, "bf16"):
        assert layer(torch.ones(1, 8)).dtype is torch.bfloat16
    assert layer.weight.dtype is torch.float32


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="this CPU has no bf16, so the test above saw it refused",
)
def test_bf16_is_refused_on_a_cpu_without_it() -> None:
    code = "from trainer.machine.device import configure; configure('cpu', 'bf16')"
    older = {**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41"}
    done = subprocess.run([sys.executable, "-c", code], env=older, capture_output=True, text=True)
    assert "does not support bfloat16" in done.stderr


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_autocast_changes_nothing_otherwise(precision: str) -> None:
    with device.autocast(torch.device("cpu"), precision):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype is torch.float32


def test_seeds_reach_all_generators() -> None:
    def draw() -> tuple[float, float, float]:
        device.seed_everything(3)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert draw() == draw()


def test_description_is_plain_json() -> None:
    facts = device.describe(torch.device("cpu"))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["name"]
    assert (facts["type"], facts["memory_bytes"], facts["uuid"]) == ("cpu", None, None)
