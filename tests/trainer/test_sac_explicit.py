"""SAC's update with explicit gradients: what autograd computes, in float64 to its last digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.trainer.sacs import ACTION, CONFIG, make, make_batch
from trainer.algorithms.kernels.operations import Operations
from trainer.algorithms.kernels.plain import plain
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_explicit import constants
from trainer.nn import mlp

CONFIGS = {
    "plain": {},
    "three layers, clipped": {
        "critic_hidden": (24, 16, 8),
        "actor_hidden": (16, 12, 8),
        "max_grad_norm": 0.05,
    },
    "one layer": {"critic_hidden": (24,), "actor_hidden": (16,)},
    "multi-head": {"heads": "multi-head", "max_grad_norm": 1.0},
    "without an id": {"one_hot": False},
    "shared temperature": {"temperature": "shared", "log_std_bounding": "tanh", "log_std_max": 0.5},
    "deviations at their bounds": {"log_std_min": -0.1, "log_std_max": 0.1},
    "weight decay": {"weight_decay": 0.1, "reward_scale": 3.0, "target_entropy": -0.7},
}


@pytest.fixture(autouse=True)
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", False)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def operations(config: SACConfig) -> Operations:
    return plain(constants(config, ACTION))


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_explicit_gradients_are_those_of_autograd(changes: dict[str, object], ends: bool) -> None:
    config = replace(CONFIG, **changes)
    factor = torch.tensor([0.5, 1.0, 2.0])
    ours = make(config, reward_factor=factor, operations=operations(config))
    theirs = make(config, reward_factor=factor)
    ours.policy.encoder.std.fill_(2.0), theirs.policy.encoder.std.fill_(2.0)
    for update in range(5):
        torch.manual_seed(update)
        batch = make_batch(ends=ends)
        if update == 2:
            batch.reward[3] = torch.nan
        numbers = []
        for agent in (ours, theirs):
            torch.manual_seed(update)
            numbers.append(agent.update(batch))
        torch.testing.assert_close(*numbers, rtol=1e-12, atol=1e-12, equal_nan=True)
        torch.testing.assert_close(ours.tensors(), theirs.tensors(), rtol=1e-12, atol=1e-12)
    assert ours.skipped.tolist() == [1, 0]


def test_a_least_value_that_both_critics_give_has_both_gradients() -> None:
    ours, theirs = make(CONFIG, operations=operations(CONFIG)), make(CONFIG)
    for agent in (ours, theirs):
        for parameter in agent.critics.parameters():
            parameter.data[1] = parameter.data[0]
        torch.manual_seed(1)
        agent.update(make_batch())
    torch.testing.assert_close(ours.tensors(), theirs.tensors(), rtol=1e-12, atol=1e-12)
