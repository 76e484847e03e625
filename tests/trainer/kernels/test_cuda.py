"""On a real GPU: what the emulator and the compiler cannot tell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.trainer.kernels.test_kernels import CONSTANTS, OTHER_CONSTANTS
from tests.trainer.sacs import CONFIG, make, make_batch
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.kernels.choice import on_device, sampler_on
from trainer.algorithms.kernels.operations import Constants
from trainer.replay import Batch

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
