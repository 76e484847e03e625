import copy
from dataclasses import replace

import pytest
import torch

from tests.trainer.sacs import ACTION, CONFIG, STRONG, TASKS, make, make_batch, same
from tests.trainer.textbooks import TextbookSAC
from trainer.recipe import share


@pytest.mark.slow
@pytest.mark.parametrize("wide", [512, 16], ids=["together", "apart"])
@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, False),
        ({"layer_norm": True}, False),
        ({"heads": "multi-head"}, False),
        ({"max_grad_norm": 0.05}, False),
        ({"reward_scale": 0.1, "gamma": 0.99}, False),
        ({}, True),
        (STRONG, False),
        ({**STRONG, "critic_reduction": "min", "heads": "multi-head"}, True),
        ({"temperature": "shared"}, False),
        ({"log_std_bounding": "tanh", "log_std_min": -3.0}, False),  # PyTorch's densities are coarse below
    ],
    ids=str,
)
def test_updates_equal_a_plain_implementation(monkeypatch, changes, ends, wide):
    monkeypatch.setattr(share, "_WIDE", wide)  # from where the actor is evaluated in next observations apart
    config = replace(CONFIG, **changes)
    agent = make(config)
    reference = TextbookSAC(agent, config)
    torch.manual_seed(1)
    batches = [make_batch(ends=ends) for _ in range(4)]
    for seed, batch in enumerate(batches):
        torch.manual_seed(seed)
        agent.update(batch)
        torch.manual_seed(seed)
        reference.update(batch)
    for ours, theirs in (
        (agent.policy, reference.actor),
        (agent.critics, reference.critics),
        (agent.targets, reference.targets),
    ):
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(agent.log_alpha, reference.log_alpha.expand(TASKS), rtol=1e-4, atol=1e-5)


def test_where_the_recipe_names_no_entropy_it_is_minus_the_count_of_numbers():
    told, untold = (make(replace(CONFIG, target_entropy=entropy)) for entropy in (-float(ACTION), None))
    batch = make_batch()
    for agent in (told, untold):
        torch.manual_seed(1)
        agent.update(batch)
    assert torch.equal(told.log_alpha, untold.log_alpha)


def test_the_actor_loss_reaches_the_actor_and_leaves_the_critics_alone():
    agent = make(CONFIG)
    (part,) = [agent._play(*part, agent.alpha) for part in agent._split(make_batch())]
    agent._actor_loss(part).backward()
    assert all(parameter.grad is not None for parameter in agent.policy.parameters())
    assert all(parameter.grad is None for parameter in agent.critics.parameters())


def test_what_overflows_only_in_the_gradient_is_skipped_too():
    agent = make(CONFIG)
    before = copy.deepcopy(agent.state_dict())
    batch = make_batch()
    losses = agent.update(batch._replace(observation=batch.observation * 1e17))
    assert losses["loss/critic"].isfinite()
    assert losses["grad_norm/critic"].isinf()
    agent.skipped.zero_()
    assert all(same(agent.state_dict(), before))


def test_norms_are_logged_as_they_are_before_clipping():
    batch = make_batch()
    logs = []
    for bound in (0.0, 0.01):
        agent = make(replace(CONFIG, max_grad_norm=bound))
        torch.manual_seed(3)
        logs.append(agent.update(batch))
    free, clipped = logs
    assert free["grad_norm/critic"] == clipped["grad_norm/critic"] > 0.01
    assert clipped["grad_norm/actor"] > 0.01
