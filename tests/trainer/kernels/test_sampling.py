"""A kernel draws what PyTorch does, to the bit: the same transitions, also of several replays at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.kernels.emulator import Emulator
from tests.trainer.replays import draw_as_on_a_device
from tests.trainer.sacs import same
from tests.trainer.test_replay import seeded
from trainer.algorithms.kernels.nvrtc import KernelError
from trainer.algorithms.kernels.sampling import check_sampler, sampler_of
from trainer.replay import Replay, ReplayGroup
from trainer.replay.draw import BatchSampler, DrawSource

CPU = torch.device("cpu")
SEEDS = 3
pytestmark = pytest.mark.xdist_group("kernels")


@pytest.fixture
def kernel(emulated: Callable[[torch.dtype], Emulator]) -> BatchSampler:
    return sampler_of(emulated(torch.float32))


def make(envs: int, batch: int, sampler: BatchSampler | None) -> list[Replay]:
    replays = [Replay(3, envs, 120, batch, 10, 4, 2) for _ in range(SEEDS)]
    for replay in replays:
        draw_as_on_a_device(replay, sampler)
    return replays


def add(replays: list[Replay], envs: int, step: int) -> None:
    for seed, replay in enumerate(replays):
        rng = np.random.default_rng([seed, step])
        numbers = [rng.standard_normal((envs, width), np.float32) for width in (4, 2, 4)]
        task = np.arange(envs) % 3
        if envs % 3:  # those left over move from task to task
            task[envs // 3 * 3 :] = (task[envs // 3 * 3 :] + step // 10) % 3
        replay.add(*numbers[:2], numbers[0][:, 0], numbers[2], task, np.full(envs, 10 - step % 10))


@pytest.mark.slow
@pytest.mark.parametrize(("envs", "batch"), [(3, 12), (6, 10), (8, 17)])
def test_batches_are_those_that_pytorch_draws(kernel: BatchSampler, envs: int, batch: int) -> None:
    replays, alone, grouped = (make(envs, batch, own) for own in (None, kernel, kernel))
    streams = [[seeded(seed) for seed in range(SEEDS)] for _ in range(3)]
    group = ReplayGroup(grouped, streams[2])
    for step in range(75):  # the rings begin again
        for own in (replays, alone, grouped):
            add(own, envs, step)
        if step < 10 or step % 5:
            continue
        together = group.sample()
        for seed in range(SEEDS):
            with streams[0][seed]:
                expected = replays[seed].sample()
            with streams[1][seed]:
                found = alone[seed].sample()
            assert all(same(list(found.tensors), list(expected.tensors)))
            assert all(same([tensor[seed] for tensor in together.tensors], list(expected.tensors)))
            assert all(same(grouped[seed].tensors(), replays[seed].tensors()))


@pytest.mark.slow
def test_a_check_passes_the_kernel_and_draws_from_no_generator_of_a_run(kernel: BatchSampler) -> None:
    before = torch.get_rng_state()
    check_sampler(kernel, CPU)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["window", "task", "rotation"])
def test_a_sampler_that_draws_something_else_is_refused(kernel: BatchSampler, part: str) -> None:
    def wrong(sources: Sequence[DrawSource], window: Tensor, task: Tensor) -> Callable[[], None]:
        gather = kernel(sources, window, task)
        spoilt = {"window": window, "task": task, "rotation": sources[1].rotation}[part]

        def spoil() -> None:
            gather()
            spoilt.view(-1)[-1] -= 1

        return spoil

    with pytest.raises(KernelError, match="draws other transitions"):
        check_sampler(wrong, CPU)
