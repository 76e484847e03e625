"""On a real GPU: what the emulator and the compiler cannot tell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from tests.trainer.kernels.test_kernels import CONSTANTS, OTHER_CONSTANTS
from tests.trainer.kernels.test_sampling import add
from tests.trainer.sacs import CONFIG, make, make_batch
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.kernels.choice import on_device, sampler_on
from trainer.algorithms.kernels.operations import Constants
from trainer.replay import Batch, Replay

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("constants", [CONSTANTS, OTHER_CONSTANTS], ids=["each", "shared"])
def test_every_kernel_computes_what_pytorch_does(constants: Constants) -> None:
    found, remark = on_device(torch.device("cuda", 0), constants)
    assert found is not None, remark
    assert remark.startswith("updates are computed by kernels of NVRTC ")


def test_the_sampler_draws_what_pytorch_does() -> None:
    found, remark = sampler_on(torch.device("cuda", 0))
    assert found is not None, remark
    assert remark.startswith("batches are drawn by a kernel of NVRTC ")


def batch_of(replay: Replay) -> dict[str, Tensor]:
    return dict(zip(Batch._fields, replay.sample().tensors, strict=False))


@pytest.mark.parametrize("envs", [3, 6])
def test_batches_drawn_in_a_graph_are_those_that_pytorch_draws(envs: int) -> None:
    device, drawn = torch.device("cuda", 0), []
    for sampler in (None, sampler_on(device)[0]):
        replay = Replay(3, envs, 120, 10, 10, 4, 2, device, sampler=sampler)
        draw = CapturedUpdate(partial(batch_of, replay), replay.tensors, device)
        torch.cuda.manual_seed(0)
        for step in range(30):
            add([replay], envs, step)
            if step >= 10:
                drawn.append([own.clone() for own in draw().values()])
        assert not draw.note
    torch.testing.assert_close(drawn[:20], drawn[20:], rtol=0, atol=0)


@pytest.mark.parametrize("heads", ["single", "multi-head"])
def test_captured_kernels_compute_what_they_do_uncaptured(heads: str) -> None:
    device, results = torch.device("cuda", 0), []
    for captured in (False, True):
        agent = make(replace(CONFIG, heads=heads, max_grad_norm=0.05), device=device)
        assert agent.operations is not None, agent.remark
        batch = Batch(*(tensor.to(device) for tensor in make_batch().tensors))
        step = CapturedUpdate(partial(agent.update, batch), agent.tensors, device)
        torch.cuda.manual_seed(0)
        for update in range(4):
            batch.reward[3] = torch.nan if update == 2 else 0.5
            step() if captured else agent.update(batch)
        assert not step.note
        assert agent.skipped.tolist() == [1, 0]
        results.append([tensor.clone() for tensor in agent.tensors()])
    torch.testing.assert_close(*results, rtol=0, atol=0)
