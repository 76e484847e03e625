from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.sacs import ACTION, CONFIG, OBSERVATION, STRONG, TASKS, make, make_batch, same
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.sac_learner import SAC
from trainer.replay import Batch

CPU = torch.device("cpu")


class CpuRecorder:
    """Does on the CPU what a GPU's recorder does: `record` computes nothing, `replay` computes."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._failure = failure
        self._work: Callable[[], object] | None = None

    def generator_state(self) -> Tensor:
        return torch.get_rng_state()

    def set_generator_state(self, state: Tensor) -> None:
        torch.set_rng_state(state)

    def warm_up(self, work: Callable[[], object]) -> None:
        self.calls.append("warm_up")
        work()

    def record(self, work: Callable[[], object]) -> None:
        self.calls.append("record")
        if self._failure:
            raise self._failure
        self._work = work

    def replay(self) -> None:
        self.calls.append("replay")
        assert self._work is not None
        self._work()

    def release(self) -> None:
        self._work = None


def learner(seed: int = 0, **changes: Any) -> tuple[SAC, Callable[[], dict[str, Tensor]]]:
    """A learner and its step on random batches, which the step itself draws."""
    agent = make(replace(CONFIG, **changes))
    torch.manual_seed(seed)
    return agent, lambda: agent.update(make_batch())


def test_without_a_gpu_the_step_is_just_called() -> None:
    agent, step = learner()
    reference, plain = learner()
    update = CapturedUpdate(step, agent.tensors, CPU)
    torch.manual_seed(1)
    logs = [update() for _ in range(3)]
    torch.manual_seed(1)
    expected = [plain() for _ in range(3)]
    assert all(same(logs, expected))
    assert all(same(agent.state_dict(), reference.state_dict()))
    assert update.note == ""


@pytest.mark.parametrize("changes", [{}, STRONG], ids=["plain", "strong"])
def test_warming_up_leaves_no_trace(changes: dict[str, Any]) -> None:
    agent, step = learner(**changes)
    reference, plain = learner(**changes)
    for _ in range(
        4
    ):  # as after a resumption: optimisers with a past, a generator in the middle of its stream
        step()
    state = torch.get_rng_state()
    torch.manual_seed(0)
    for _ in range(4):
        plain()
    assert torch.equal(torch.get_rng_state(), state)

    recorder = CpuRecorder()
    update = CapturedUpdate(step, agent.tensors, CPU, recorder)
    places = [tensor.data_ptr() for tensor in agent.tensors()]
    logs = [copy.deepcopy(update()) for _ in range(3)]
    after = torch.get_rng_state()
    assert recorder.calls == ["warm_up", "record", "replay", "replay", "replay"]
    assert [tensor.data_ptr() for tensor in agent.tensors()] == places
    torch.set_rng_state(state)
    expected = [plain() for _ in range(3)]
    assert all(same(agent.state_dict(), reference.state_dict()))
    assert all(same(logs, expected))
    assert torch.equal(torch.get_rng_state(), after)


def test_what_a_warm_up_writes_is_put_back_before_anything_is_recorded() -> None:
    agent, step = learner()
    before = copy.deepcopy(agent.state_dict())
    state = torch.get_rng_state()

    class Looking(CpuRecorder):
        def record(self, work: Callable[[], object]) -> None:
            assert all(same(agent.state_dict(), before))
            assert torch.equal(torch.get_rng_state(), state)
            super().record(work)

        def warm_up(self, work: Callable[[], object]) -> None:
            super().warm_up(work)
            assert not all(same(agent.state_dict(), before))

    CapturedUpdate(step, agent.tensors, CPU, Looking())()


def test_a_capture_that_fails_is_reported_and_training_goes_on_the_same() -> None:
    agent, step = learner()
    reference, plain = learner()
    recorder = CpuRecorder(RuntimeError("operation not permitted when stream is capturing\nmore advice"))
    update = CapturedUpdate(step, agent.tensors, CPU, recorder)
    torch.manual_seed(1)
    update()
    update()
    assert recorder.calls == ["warm_up", "record"]
    assert update.note.endswith("operation not permitted when stream is capturing")
    torch.manual_seed(1)
    plain()
    plain()
    assert all(same(agent.state_dict(), reference.state_dict()))


@pytest.mark.parametrize(
    "full",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
    ids=["allocator", "cublas", "graph"],
)
def test_out_of_memory_is_for_the_caller_and_leaves_no_trace(full: Exception) -> None:
    agent, step = learner()
    before = copy.deepcopy(agent.state_dict())
    update = CapturedUpdate(step, agent.tensors, CPU, CpuRecorder(full))
    with pytest.raises(torch.OutOfMemoryError):
        update()
    assert all(same(agent.state_dict(), before))
    assert update.note == ""


class OnCuda:
    """A learner on the GPU that draws its batches there, captured or not; all have the same data."""

    def __init__(self, captured: bool, seed: int = 0, **changes: Any) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.manual_seed(0)
        self.data = Batch(*(tensor.to(self.device) for tensor in make_batch(4096).tensors))
        torch.manual_seed(seed)
        self.factor = torch.ones(TASKS, device=self.device)
        config = replace(CONFIG, **changes)
        self.agent = SAC(config, OBSERVATION, ACTION, TASKS, self.device, reward_factor=self.factor)
        self.update = CapturedUpdate(self.step, self.agent.tensors, self.device) if captured else self.step
        torch.manual_seed(1)

    def step(self) -> dict[str, Tensor]:
        rows = (torch.rand(64, device=self.device) * 4096).long()
        return self.agent.update(Batch(*(tensor[rows] for tensor in self.data.tensors)))


def distance(ours: SAC, theirs: SAC) -> float:
    """The greatest difference of two learners' tensors, relative to the greatest value of each tensor."""
    pairs = zip(ours.tensors(), theirs.tensors(), strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-12)) for a, b in pairs)


@pytest.mark.cuda
@pytest.mark.parametrize("changes", [{}, STRONG], ids=["plain", "strong"])
def test_captured_equals_eager_on_the_gpu(changes: dict[str, Any]) -> None:
    captured, eager = OnCuda(True, **changes), OnCuda(False, **changes)
    for each in (captured, eager):
        torch.manual_seed(1)
        for _ in range(1000):
            each.update()
    assert captured.update.note == ""
    assert distance(captured.agent, eager.agent) < 1e-5


@pytest.mark.cuda
def test_a_capture_after_a_resumption_goes_on_as_without_one() -> None:
    straight = OnCuda(True)
    for _ in range(20):
        straight.update()
    stored = copy.deepcopy(straight.agent.state_dict())
    generator = torch.cuda.get_rng_state(straight.device)
    for _ in range(20):
        straight.update()
    end = torch.cuda.get_rng_state(straight.device)

    resumed = OnCuda(True, seed=5)
    resumed.agent.load_state_dict(stored)
    torch.cuda.set_rng_state(generator, resumed.device)
    for _ in range(20):
        resumed.update()
    assert all(same(resumed.agent.state_dict(), straight.agent.state_dict()))
    assert torch.equal(torch.cuda.get_rng_state(straight.device), end)


@pytest.mark.cuda
@pytest.mark.parametrize("changes", [{}, STRONG], ids=["plain", "strong"])
def test_a_gpu_computes_the_same_twice(changes: dict[str, Any]) -> None:
    first, second = OnCuda(True, **changes), OnCuda(True, **changes)
    for each in (first, second):
        torch.manual_seed(1)
        for _ in range(100):
            each.update()
    assert all(same(first.agent.state_dict(), second.agent.state_dict()))


@pytest.mark.cuda
def test_loading_reaches_an_update_captured_before() -> None:
    captured, other = OnCuda(True), OnCuda(False, seed=3)
    captured.update()
    captured.agent.load_state_dict(copy.deepcopy(other.agent.state_dict()))
    for each in (captured, other):
        torch.manual_seed(7)
        each.update()
    assert distance(captured.agent, other.agent) < 1e-5


@pytest.mark.cuda
def test_a_captured_update_skips_what_is_not_finite() -> None:
    captured = OnCuda(True)
    captured.update()
    before = copy.deepcopy(captured.agent.state_dict())
    rewards = captured.data.reward.clone()
    captured.data.reward.fill_(float("nan"))
    captured.update()
    assert captured.agent.skipped.tolist() == [1, 1]
    captured.agent.skipped.zero_()
    assert all(same(captured.agent.state_dict(), before))
    captured.data.reward.copy_(rewards)
    captured.update()
    assert captured.agent.skipped.tolist() == [0, 0]


@pytest.mark.cuda
def test_a_captured_update_reads_the_newest_factors_of_rewards() -> None:
    captured, eager = OnCuda(True), OnCuda(False)
    for factor in (1.0, 0.1):
        for each in (captured, eager):
            each.factor.fill_(factor)
            torch.manual_seed(1)
            each.update()
        assert distance(captured.agent, eager.agent) < 1e-5


@pytest.mark.cuda
def test_a_step_that_cannot_be_captured_is_done_all_the_same() -> None:
    learner, reference = OnCuda(False), OnCuda(False)

    def waiting() -> dict[str, Tensor]:
        losses = learner.step()
        losses["loss/critic"].item()
        return losses

    update = CapturedUpdate(waiting, learner.agent.tensors, learner.device)
    for step in (update, reference.update):
        torch.manual_seed(1)
        for _ in range(3):
            step()
    assert update.note
    assert distance(learner.agent, reference.agent) < 1e-5
