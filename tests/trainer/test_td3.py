from dataclasses import replace

import pytest
import torch

from tests.trainer import off_policy_checks as checks
from tests.trainer.sacs import ACTION, OBSERVATION, TASKS, make_batch
from tests.trainer.textbooks import TextbookTD3
from trainer.algorithms.td3_update import TD3, TD3Config
from trainer.checkpoint.model import digest

CONFIG = TD3Config(
    actor_hidden=(16, 16),
    critic_hidden=(24, 24),
    layer_norm=False,
    init="he_uniform",
    actor_learning_rate=1e-3,
    critic_learning_rate=2e-3,
    adam_eps=1e-5,
    max_grad_norm=0.0,
    gamma=0.9,
    tau=0.05,
    policy_delay=2,
    exploration_noise=0.3,
    target_noise=0.2,
    target_noise_clip=0.25,
    reward_scale=1.0,
    one_hot=True,
)
VARIED = {"heads": "multi-head", "layer_norm": True, "max_grad_norm": 0.05, "policy_delay": 3}


def maker(config: TD3Config = CONFIG, **how):
    def make(**more) -> TD3:
        torch.manual_seed(0)
        agent = TD3(config, OBSERVATION, ACTION, TASKS, **how, **more)
        # output layers large enough that every term of every loss matters
        for network, target in ((agent.policy.actor, agent.target_actor), (agent.critics, agent.targets)):
            for parameters, others in ((network.weights, target.weights), (network.biases, target.biases)):
                parameters[-1].data.uniform_(-0.5, 0.5)
                others[-1].data.copy_(parameters[-1].data)
        return agent

    return make


def draw(rows: int):
    return make_batch(rows, ends=True)


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, False),
        ({}, True),
        ({"layer_norm": True, "policy_delay": 1}, False),
        ({"heads": "multi-head", "policy_delay": 3}, True),
        ({"max_grad_norm": 0.05}, False),
        ({"reward_scale": 0.1, "gamma": 0.99, "target_noise": 1.0}, True),
    ],
    ids=str,
)
def test_updates_equal_a_plain_implementation(changes, ends):
    config = replace(CONFIG, **changes)
    agent = maker(config)()
    reference = TextbookTD3(agent, config)
    torch.manual_seed(1)
    batches = [make_batch(ends=ends) for _ in range(6)]
    checks.teach(agent, batches)
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        reference.update(batch, number)
    for ours, theirs in (
        (agent.policy.actor, reference.actor),
        (agent.target_actor, reference.target_actor),
        (agent.critics, reference.critics),
        (agent.targets, reference.targets),
    ):
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_what_is_said_of_the_policy_is_of_its_last_update():
    agent = maker()()
    first, second, third, fourth = checks.teach(agent, checks.drawn(draw, 4))
    assert first["loss/actor"] == 0.0
    assert second["loss/actor"] == third["loss/actor"] != fourth["loss/actor"]
    assert second["grad_norm/actor"] == third["grad_norm/actor"] > 0.0
    assert first.keys() == second.keys()


def test_a_policy_that_is_skipped_each_time_is_skipped_in_a_row():
    agent = maker()()
    with torch.no_grad():
        next(agent.policy.actor.parameters()).fill_(torch.nan)
    for update in range(3 * agent.turns):
        agent.update(draw(8), update % agent.turns)
    assert agent.skipped.tolist() == [3, 3], "updates of the critics alone neither add to it nor end it"


def test_the_digest_of_what_is_learnt_covers_the_target_of_the_actor():
    agent = maker()()
    before = digest(agent.state_dict())
    with torch.no_grad():
        next(agent.target_actor.parameters()).add_(1.0)
    assert digest(agent.state_dict()) != before


def test_the_policy_explores_around_its_greedy_action_within_the_bounds():
    policy = maker()().policy
    batch = draw(4000)
    greedy = policy.mode(batch.observation, batch.task)
    noise = policy.draw_noise(len(greedy))
    assert noise.shape == greedy.shape == (4000, ACTION)
    sampled = policy.sample(batch.observation, batch.task, noise)
    assert torch.equal(sampled, (greedy + 0.3 * noise).clamp(-1, 1))
    assert sampled.abs().max() == 1.0
    inside = sampled.abs() < 1
    assert (sampled - greedy)[inside].std() == pytest.approx(0.3, rel=0.1)
