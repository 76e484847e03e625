"""What the model of a CUDA device finds: first in faults made for it, then in the trainer's own lines."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from tests.trainer.cuda_model import CudaModel
from trainer.algorithms.capture import CapturedUpdate, CudaRecorder


@pytest.fixture
def cuda() -> Iterator[CudaModel]:
    with CudaModel() as model:
        yield model


def captured(model: CudaModel, step: Callable[[], Tensor], *written: Tensor) -> CapturedUpdate:
    """A step that is captured at its first call."""
    return CapturedUpdate(lambda: {"found": step()}, lambda: list(written), model.device)


def test_a_step_that_waits_for_the_device_is_not_captured(cuda: CudaModel) -> None:
    number = torch.ones(3, device=cuda.device)
    update = captured(cuda, lambda: number * float(number[0]))
    update()
    assert "operation not permitted when stream is capturing" in update.note


def test_a_graph_whose_memory_was_freed_is_not_replayed(cuda: CudaModel) -> None:
    held = [torch.ones(2, device=cuda.device)]
    update = captured(cuda, lambda: held[0] + 1.0)
    update()
    held[0] = torch.zeros(2, device=cuda.device)
    with pytest.raises(AssertionError, match="whose memory has been freed"):
        update()


def test_streams_that_nobody_puts_in_order_race(cuda: CudaModel) -> None:
    number = torch.ones(2, device=cuda.device)
    side = torch.cuda.Stream(cuda.device)
    with torch.cuda.stream(side):
        number.add_(1.0)
    number.add_(1.0)
    assert cuda.order.races
    cuda.order.races.clear()
    torch.cuda.current_stream().wait_stream(side)
    number.add_(1.0)
    assert not cuda.order.races


def test_a_copy_to_the_host_is_read_only_once_it_is_there(cuda: CudaModel) -> None:
    number, there = torch.ones(2, device=cuda.device), torch.zeros(2)
    there.copy_(number, non_blocking=True)
    there.sum()
    assert cuda.order.races
    cuda.order.races.clear()
    event = torch.cuda.Event()
    there.copy_(number, non_blocking=True)
    event.record()
    event.synchronize()
    there.sum()
    assert not cuda.order.races


# --- what the trainer does on a device


def product(cuda: CudaModel) -> CapturedUpdate:
    """A captured product of its own matrices, which needs a workspace."""
    left, right = torch.ones(2, 3, 3, device=cuda.device).unbind()
    return captured(cuda, lambda: left @ right)


@pytest.mark.slow
def test_graphs_that_replay_beside_each_other_share_no_workspace(cuda: CudaModel) -> None:
    one, other = product(cuda), product(cuda)
    one(), other()
    side = torch.cuda.Stream(cuda.device)
    torch.cuda.synchronize()
    one()
    with torch.cuda.stream(side):
        other()
    assert cuda.order.races == []


@pytest.mark.slow
def test_a_graph_that_goes_takes_no_workspace_of_another_one_with_it(cuda: CudaModel) -> None:
    one, other = product(cuda), product(cuda)
    one(), other()
    del one
    gc.collect()
    other()
    assert cuda.faults == []


@pytest.mark.slow
def test_nothing_is_collected_during_a_capture(cuda: CudaModel) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.update, self.own = product(cuda), self
            self.update()

    number = torch.ones(2, device=cuda.device)

    def step() -> Tensor:
        if cuda.tape is not None:
            held = [[] for _ in range(5_000)]  # enough for a collection
            assert held
        return number + 1.0

    update = captured(cuda, step)
    gc.collect()
    Cycle()
    update()
    assert gc.isenabled()
    assert cuda.faults == []


@pytest.mark.slow
def test_captures_that_come_and_go_leave_no_workspaces_behind(cuda: CudaModel) -> None:
    for _ in range(5):
        product(cuda)()
        gc.collect()
    assert len(cuda.workspaces) <= 1


def test_graphs_share_no_stream_after_more_have_gone_than_there_are_streams(cuda: CudaModel) -> None:
    for _ in range(40):
        CudaRecorder(cuda.device)
    recorders = [CudaRecorder(cuda.device) for _ in range(20)]
    assert len({recorder.stream for recorder in recorders}) == len(recorders)
