"""The emulator notices what a kernel does wrong, also where a GPU would not tell of it."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.kernels.emulator import EmulationError, Emulator
from tests.trainer.kernels.redzones import Redzones

pytestmark = [pytest.mark.xdist_group("kernels"), pytest.mark.needs("g++"), pytest.mark.slow]

SOURCE = """
#define SHARED extern __shared__ REAL memory[]
extern "C" __global__ void turned(const REAL* given, REAL* result) {
  SHARED;
  memory[threadIdx.x] = given[threadIdx.x];
  __syncthreads();
  result[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void turned_at_once(const REAL* given, REAL* result) {
  SHARED;
  memory[threadIdx.x] = given[threadIdx.x];
  result[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void unwritten(REAL* result) {
  SHARED;
  result[threadIdx.x] = memory[threadIdx.x];
}
extern "C" __global__ void alone() {
  if (threadIdx.x) __syncthreads();
}
extern "C" __global__ void apart() {
  if (threadIdx.x) __syncthreads(); else
    __syncthreads();
}
extern "C" __global__ void one_lane(REAL* result) {
  if (threadIdx.x == 0) result[0] = __shfl_xor_sync(0xffffffffu, result[0], 1);
}
extern "C" __global__ void far_in_memory(int index) {
  SHARED;
  memory[index] = 0;
}
extern "C" __global__ void far(REAL* result, int index) { result[index] = 1; }
extern "C" __global__ void __launch_bounds__(32) numbers(const long long* a, double b, const float* c) {}
"""


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted.cu").write_text(SOURCE)
    return Emulator(folder, torch.float32, folder)


ONE = (1, 1, 1)
BLOCK = (32, 1, 1)


def test_what_stands_behind_a_barrier_is_read_by_all(launch: Emulator) -> None:
    given, result = torch.arange(32.0), torch.empty(32)
    launch("turned", ONE, BLOCK, [given, result], 128)
    assert result.tolist() == given.flip(0).tolist()


def test_a_missing_barrier_shows(launch: Emulator) -> None:
    given, result = torch.arange(32.0), torch.empty(32)
    launch("turned_at_once", ONE, BLOCK, [given, result], 128)
    assert result.isnan().any()


def test_shared_memory_that_nobody_wrote_is_no_number(launch: Emulator) -> None:
    result = torch.zeros(32)
    launch("unwritten", ONE, BLOCK, [result], 128)
    assert result.isnan().all()


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("alone", [], "threads did not all come to the barrier in line 19"),
        ("apart", [], "threads did not all come to the barrier"),
        ("one_lane", [torch.zeros(1)], "lanes of a warp did not all"),
        ("far_in_memory", [32], "wrote past the end of shared memory"),
        ("numbers", [torch.zeros(1), 1.0, None], r"given \['float\*', 'double', 'none'\]"),
        ("numbers", [None, 1, None], r"given \['none', 'int', 'none'\]"),
        ("numbers", [None, 1.0], r"given \['none', 'double'\]"),
    ],
)
def test_a_fault_is_told_of(launch: Emulator, name: str, arguments: list[object], fault: str) -> None:
    with pytest.raises(EmulationError, match=fault):
        launch(name, ONE, BLOCK, arguments, 128)  # type: ignore[arg-type]


def test_a_block_of_more_threads_than_a_kernel_is_compiled_for_is_refused(launch: Emulator) -> None:
    with pytest.raises(EmulationError, match="extents"):
        launch("numbers", ONE, (64, 1, 1), [None, 1.0, None])


@pytest.mark.parametrize("index", [-1, 8])
def test_a_number_written_beside_a_tensor_is_found(launch: Emulator, index: int) -> None:
    with Redzones() as zones:
        room = torch.empty(8)
    zones.check()
    launch("far", ONE, ONE, [room, index])
    with pytest.raises(AssertionError, match="beside a tensor of 8 numbers"):
        zones.check()
    assert room.isnan().all()
