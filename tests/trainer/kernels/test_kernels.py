"""Each kernel, run on the processor, computes what PyTorch does, in float64 to 1e-12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.kernels.emulator import EmulationError, Emulator
from tests.trainer.kernels.redzones import Redzones
from trainer.algorithms.kernels.check import CASES, SIZES, CheckSizes, Material, check
from trainer.algorithms.kernels.cuda import operations
from trainer.algorithms.kernels.nvrtc import SOURCES, KernelError
from trainer.algorithms.kernels.operations import Constants, Operations
from trainer.algorithms.kernels.plain import plain

CPU = torch.device("cpu")
CONSTANTS = Constants(0.97, 2.5, -3.0, False, (-1.5, 1.0), False)
OTHER_CONSTANTS = replace(CONSTANTS, shared=True, tanh_bounds=True)
MORE_SIZES = (
    CheckSizes(3, 1, 1, 1, 1, 1),
    CheckSizes(1, 33, 8, 2, 6, 2),
    CheckSizes(2, 65, 33, 1, 2, 5),
    CheckSizes(1, 700, 4, 20, 1, 20),
    CheckSizes(4, 129, 160, 1, 4, 40),
)
pytestmark = pytest.mark.xdist_group("kernels")


@pytest.mark.slow
@pytest.mark.parametrize("constants", [CONSTANTS, OTHER_CONSTANTS], ids=["each", "shared"])
@pytest.mark.parametrize("sizes", [*SIZES, *MORE_SIZES], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_kernels_compute_what_pytorch_does_and_write_nothing_else(
    emulated: Callable[[torch.dtype], Emulator], dtype: torch.dtype, sizes: CheckSizes, constants: Constants
) -> None:
    for name, case in CASES.items():
        for seed in range(2):
            with Redzones() as zones:
                ours = case(operations(emulated(dtype), constants), Material(sizes, CPU, dtype, seed))
            zones.check()
            compare(name, ours, case(plain(constants), Material(sizes, CPU, torch.float64, seed)))


def compare(name: str, ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """A sum of float32 has an error of a few units in the last place of its largest terms."""
    for number, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        bound = 3e-6 if own.dtype == torch.float32 else 1e-12
        fits = torch.isclose(own.double(), other.double(), rtol=bound, atol=bound, equal_nan=True)
        assert fits.all(), f"result {number} of {name}: {own[~fits]}, not {other[~fits]}"


@pytest.mark.slow
def test_results_do_not_depend_on_the_order_of_blocks_and_threads(
    emulated: Callable[[torch.dtype], Emulator],
) -> None:
    for case in CASES.values():
        runs = [case(operations(emulated(torch.float32), CONSTANTS), material()) for _ in range(3)]
        for again in runs[1:]:
            torch.testing.assert_close(again, runs[0], rtol=0, atol=0, equal_nan=True)


def material() -> Material:
    return Material(SIZES[1], CPU, torch.float32)


@pytest.mark.slow
def test_numbers_that_are_none_stay_none(emulated: Callable[[torch.dtype], Emulator]) -> None:
    """Where nobody counts on it, a comparison with NaN could make a number of it."""
    own = operations(emulated(torch.float32), CONSTANTS)
    nan = torch.full((2, 5), torch.nan)
    density, alpha, task = torch.zeros(1, 5), torch.zeros(1, 1), torch.zeros(1, 5, dtype=torch.int64)
    values = torch.stack([nan[0], torch.zeros(5)])
    for given in (values, values.flip(0).contiguous()):
        slope, loss = own.actor_slope(given, density, alpha, task)
        assert slope.isnan().all()
        assert loss.isnan().all()
    assert own.mask_(torch.full((1, 1, 3), 2.0), torch.tensor([[[torch.nan, 0.0, 1.0]]])).tolist() == [
        [[2, 0, 2]]
    ]


class Wrong:
    """Operations one of which is a little wrong."""

    def __init__(self, own: Operations, name: str) -> None:
        self._own, self._name = own, name

    def __getattr__(self, name: str) -> object:
        method = getattr(self._own, name)
        if name != self._name:
            return method
        if name in ("average", "optimizer"):
            return lambda first, *others: method(_hurried(first), *others)

        def spoiled(*given: Any) -> Any:
            result = method(*given)
            tensors = [result] if isinstance(result, Tensor) else result or given[:1]
            for tensor in tensors:
                tensor.view(-1)[-1:] += 1 if tensor.dtype == torch.int64 else 0.01
            return result

        return spoiled


def _hurried(optimizer: object) -> object:
    for member in getattr(optimizer, "members", [optimizer]):
        for name in ("tau", "learning_rate"):
            if hasattr(member, name):
                setattr(member, name, 1.1 * getattr(member, name))
    return optimizer


OPERATIONS = [name for name in vars(Operations) if not name.startswith("_")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_computes_something_else_is_found_and_named(name: str) -> None:
    with pytest.raises(KernelError, match="something else than PyTorch does: "):
        check(Wrong(plain(CONSTANTS), name), plain(CONSTANTS), CPU)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_check_passes_operations_that_fit_and_draws_from_no_generator_of_a_run(
    emulated: Callable[[torch.dtype], Emulator],
) -> None:
    before = torch.get_rng_state()
    check(operations(emulated(torch.float32), CONSTANTS), plain(CONSTANTS), CPU)
    assert torch.equal(torch.get_rng_state(), before)
    launched = set(emulated(torch.float32).launched)
    assert set(emulated(torch.float32).kernels) - launched <= {"sample"}


BARRIERS = {path: path.read_text().count("__syncthreads();") for path in SOURCES.glob("*.cu*")}


def test_blocks_meet_in_one_place() -> None:
    """Of which the emulator sees nothing: blocks that have read or written before the last one comes."""
    assert {path.name for path in BARRIERS if BARRIERS[path]} == {"common.cuh", "last_block.cuh"}


@pytest.mark.slow
@pytest.mark.needs("g++")
@pytest.mark.parametrize("which", range(BARRIERS[SOURCES / "common.cuh"]))
def test_every_barrier_is_missed_where_it_is_left_out(tmp_path: Path, which: int) -> None:
    for path in SOURCES.glob("*.cu*"):
        (tmp_path / path.name).write_text(path.read_text())
    common = tmp_path / "common.cuh"
    parts = common.read_text().split("__syncthreads();")
    common.write_text(
        "__syncthreads();".join([*parts[:which], "".join(parts[which : which + 2]), *parts[which + 2 :]])
    )
    own = operations(Emulator(tmp_path, torch.float32, tmp_path), CONSTANTS)

    def checks() -> None:
        for _ in range(5):
            check(own, plain(CONSTANTS), CPU)

    with pytest.raises((KernelError, EmulationError)):
        checks()
