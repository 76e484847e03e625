"""In bfloat16 the values that are learnt from are as fine as in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.trainer.sacs import ACTION, CONFIG, OBSERVATION, STRONG, TASKS, make, make_batch
from trainer.algorithms.sac_learner import SAC
from trainer.nn.perceptron import Perceptron
from trainer.nn.stacking import stacked

ROWS = 2000
ABOUT = 700.0
SCALAR = {key: value for key, value in STRONG.items() if not key.startswith("value_")}


def bfloat16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def is_as_fine(rounded: Tensor, exact: Tensor) -> bool:
    """Tells whether values are about 700, of float32, and within 1% as many different ones."""
    counts = [len(values.flatten().unique()) for values in (rounded, exact)]
    assert exact.mean().item() == pytest.approx(ABOUT, rel=0.1)
    return rounded.dtype == torch.float32 and counts[0] == pytest.approx(counts[1], rel=0.01)


def td_errors(agent: SAC) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a critic's values, those of it frozen, and its temporal-difference errors."""
    torch.manual_seed(1)
    (part,) = [agent._play(*part, agent.alpha) for part in agent._split(make_batch(ROWS))]
    row = part.features, part.batch.action, part.batch.task
    value = agent.value.mean(agent._outputs(agent.critics, *row))
    frozen = agent.value.mean(agent._outputs(agent.critics, *row, frozen=True))
    return value.detach(), frozen.detach(), (agent._td_target(part) - value).detach()


@pytest.mark.parametrize(
    "changes",
    [{}, {"heads": "multi-head"}, {"layer_norm": True}, SCALAR],
    ids=["plain", "heads", "norm", "residual"],
)
def test_in_bf16_the_critics_values_and_targets_are_as_fine_as_in_fp32(changes) -> None:
    config = replace(CONFIG, gamma=0.99, **changes)
    exact, rounded = make(config), make(config, autocast=bfloat16)
    for agent in (exact, rounded):
        for network in (agent.critics, agent.targets):
            network.biases[-1].data += ABOUT
    value, frozen, error = td_errors(exact)
    rounded_value, rounded_frozen, rounded_error = td_errors(rounded)
    assert is_as_fine(rounded_value, value)
    assert is_as_fine(rounded_frozen, frozen)
    assert rounded_error.std().item() == pytest.approx(error.std().item(), rel=0.01)


def test_in_bf16_the_critics_of_several_seeds_at_once_are_as_fine() -> None:
    agents = [make(CONFIG) for _ in range(2)]
    for agent in agents:
        agent.critics.biases[-1].data += ABOUT
    rows, task = torch.randn(2, ROWS, OBSERVATION + TASKS + ACTION), torch.zeros(2, ROWS, dtype=torch.int64)
    exact = torch.stack([agent.critics(own, task[0]) for agent, own in zip(agents, rows, strict=True)])
    together = stacked([agent.critics for agent in agents])
    with bfloat16():
        assert is_as_fine(together(rows, task), exact)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_in_bf16_the_values_on_policy_are_as_fine_as_in_fp32(activation: str) -> None:
    torch.manual_seed(0)
    critic = Perceptron(5, (16, 16), 1, activation=activation, output_gain=3.0)
    critic.layers[-1].bias.data.fill_(ABOUT)
    rows = torch.randn(ROWS, 5)
    with torch.no_grad():
        exact = critic(rows)
        with bfloat16():
            found = [critic(rows), critic.trace(rows)[-1]]
    for values in found:
        assert is_as_fine(values, exact)
        assert (values - exact).abs().max() < 0.2, "as a multiple of 4 it would be up to 2 off"
