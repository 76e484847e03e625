"""Every update on `meta` tensors, which have shapes and strides and no numbers to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.cuda_model.tape import tensors_of
from tests.trainer.test_captured_recipes import OFF_POLICY, ON_POLICY, settings_for
from trainer.loops.learner import Learner
from trainer.loops.rollout_learner import RolloutLearner
from trainer.ranks.parallel import Ranks

META = torch.device("meta")


class _Devices(TorchDispatchMode):
    """Collects the operations that are given tensors of two devices, numbers apart."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = {tensor.device.type for tensor in tensors_of((args, kwargs)) if tensor.dim()}
        if len(found) > 1:
            self.mixed.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What PyTorch lacks on `meta`: fused steps in place, and the grouping of tensors by their device."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    for name in ("_fused_sgd_", "_fused_adam_.tensor_lr"):
        library.impl(name, lambda *_, **__: None)
    monkeypatch.setattr(
        torch.nn.utils,
        "get_total_norm",
        lambda each, **_: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(each))),
    )
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # it does not know of `meta`
    yield
    library._destroy()


def check_gradients(parameters: list[torch.Tensor]) -> None:
    """Fused optimisers take gradients that lie in memory as their parameters do."""
    assert all(parameter.grad is not None for parameter in parameters)
    assert [each.grad.stride() for each in parameters] == [each.stride() for each in parameters]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", OFF_POLICY)
def test_an_update_off_policy_stays_on_its_device(tmp_path: Path, name: str, parts: int) -> None:
    settings, factory = settings_for(tmp_path, name, "fp32")
    fallback = {"replay_on_host": False, "micro_batches": parts}
    learner = Learner(settings, factory, META, print, fallback)
    with _Devices() as devices:
        for _ in range(learner.agent.turns):
            losses = learner.update()
    assert devices.mixed == []
    assert {loss.device.type for loss in losses.values()} == {"meta"}
    optimizers = learner.agent.optimizers.values()
    check_gradients([each for optimizer in optimizers for each in optimizer._parameters])


@pytest.mark.parametrize("name", ON_POLICY)
def test_an_update_on_policy_stays_on_its_device(tmp_path: Path, name: str) -> None:
    settings, factory = settings_for(tmp_path, name, "fp32")
    learner = RolloutLearner(settings, factory, META, Ranks())
    agent = learner.agent
    with _Devices() as devices:
        rows = agent.estimate(learner.rollout)
        losses = agent.update(agent.pack(rows).batch(learner.chosen if learner.cuts.count > 1 else None))
    assert devices.mixed == []
    assert {loss.device.type for loss in losses.values()} == {"meta"}


def test_numbers_on_the_device_cannot_be_looked_at(tmp_path: Path) -> None:
    settings, factory = settings_for(tmp_path, OFF_POLICY[0], "fp32")
    losses = Learner(settings, factory, META, print).update()
    with pytest.raises(RuntimeError, match="meta"):
        losses["loss/critic"].item()
