"""What is optional in a recipe leaves the others as they were: recorded before there was any of it.

Initial weights are compared to the bit, losses after three updates closely: processors differ in the last
bits. On the machine of the recording those, and all parameters, were the same to the bit.
"""

from __future__ import annotations

import hashlib

import pytest
import torch

from trainer import recipe
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.replay import Batch

RECORDED = {
    "guide-mt10-debug": (
        "aeed000e5f59cab9e393c2f03f4899a9c7ffd7d3c0a415e23c0ed594c486aa86",
        4.528532981872559,
        -4.65431022644043,
    ),
    "local-demo": (
        "f70ee00da542e575df9f5c2bcf22481f946d094716a5798ac329e875f1fa640f",
        0.9589771032333374,
        -0.44125452637672424,
    ),
    "mclean2025-mt10": (
        "db1e1ba9954ef8536f4c94141f840fb0159a4f12b22c6a543e6a6d2d260c27fd",
        5.494576930999756,
        -3.3141300678253174,
    ),
    "sac": (
        "25951f91a6784a465ef4f44d3ae4c207b57442febd7f4ec8ddae8d8cb9bcaefc",
        7.823342800140381,
        -2.7340052127838135,
    ),
}
"""The sha256 of the initial weights, and the critics' and the policy's loss in the third update."""
THEN = {"sac": {"init": "fan_in_uniform"}}
"""Values that a recipe had when it was recorded, and has no more."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recipe_without_it_learns_as_before(name: str) -> None:
    values = dict(recipe.load(name).values) | THEN.get(name, {})
    tasks = len(recipe.task_names(values["tasks"])) if "tasks" in values else 1
    torch.manual_seed(0)
    agent = SAC(SACConfig.from_values(values), 39, 4, tasks)
    found = hashlib.sha256()
    for network in (agent.policy.actor, agent.critics, agent.targets):
        for parameter in network.parameters():
            found.update(parameter.detach().numpy().tobytes())
    batch = Batch(
        torch.randn(60, 39),
        torch.rand(60, 4) * 2 - 1,
        torch.randn(60),
        torch.randn(60, 39),
        torch.arange(60) % tasks,
        None if "tasks" in values else torch.ones(60),
    )
    for _ in range(3):
        losses = agent.update(batch)
    initial, critic, actor = RECORDED[name]
    assert found.hexdigest() == initial
    assert float(losses["loss/critic"]) == pytest.approx(critic, rel=1e-4)
    assert float(losses["loss/actor"]) == pytest.approx(actor, rel=1e-4)
