from dataclasses import replace

import pytest
import torch

from tests.trainer import off_policy_checks as checks
from tests.trainer.allocated import off_policy_learner, stored_bytes
from tests.trainer.sacs import ACTION, OBSERVATION, TASKS, make_batch, same
from tests.trainer.textbook_td3 import TextbookTD3
from trainer import recipe as recipes
from trainer.algorithms import td3
from trainer.algorithms.td3_update import TD3, TD3Config
from trainer.checkpoint.model import digest
from trainer.machine.device import autocast
from trainer.recipe import RecipeError, memory
from trainer.recipe.sizes import Sizes

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


def test_policy_and_targets_move_at_the_last_turn_alone():
    agent = maker(replace(CONFIG, policy_delay=3))()
    assert agent.turns == 3
    for number in range(6):
        before = checks.learnt(agent)
        checks.teach(agent, checks.drawn(draw, 1), begin=number)
        moved = {name for name, value in checks.learnt(agent).items() if not all(same(value, before[name]))}
        always = {"critics", "optimizers"}
        assert moved == (always | {"policy", "targets", "target_actor"} if number % 3 == 2 else always)


def test_what_is_said_of_the_policy_is_of_its_last_update():
    agent = maker()()
    first, second, third, fourth = checks.teach(agent, checks.drawn(draw, 4))
    assert first["loss/actor"] == 0.0
    assert second["loss/actor"] == third["loss/actor"] != fourth["loss/actor"]
    assert second["grad_norm/actor"] == third["grad_norm/actor"] > 0.0
    assert first.keys() == second.keys()


def test_the_actor_learns_from_the_first_critic_as_it_is_now():
    agent = maker()()
    checks.teach(agent, checks.drawn(draw, 2))
    (part,) = agent._prepared(draw(12))
    action = agent.policy.mode(part.batch.observation, part.batch.task)
    values = agent.critics(torch.cat([part.features, action], -1), part.batch.task)
    loss = agent._actor_loss(part)
    torch.testing.assert_close(loss, -values[0].sum())
    loss.backward()
    assert all(parameter.grad is not None for parameter in agent.policy.actor.parameters())
    places = [tensor.data_ptr() for tensor in agent._first_critic.parameters()]
    assert places == [tensor.data_ptr() for tensor in agent.critics.parameters()]


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


def test_targets_and_losses_stay_float32_under_bfloat16():
    exact = maker()()
    rounded = maker(autocast=lambda: autocast(torch.device("cpu"), "bf16"))()
    torch.manual_seed(1)
    batch = draw(256)

    def target(agent: TD3) -> torch.Tensor:
        torch.manual_seed(2)
        (part,) = agent._prepared(batch)
        return agent._target(part)

    assert target(rounded).dtype == torch.float32
    torch.testing.assert_close(target(rounded), target(exact), rtol=0.05, atol=0.05)
    (losses,) = checks.teach(rounded, [batch], 1)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in rounded.critics.parameters())


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


MULTI_HEAD = {"heads": "multi-head", "actor_hidden": "16,24", "critic_hidden": "32"}


@pytest.mark.parametrize(("name", "changes"), [("td3", {}), ("td3-mt10", {}), ("td3-mt10", MULTI_HEAD)])
def test_networks_targets_and_optimisers_are_forecast_to_the_byte(name, changes):
    agent, sizes = off_policy_learner(name, **changes)
    count, targets = sizes.count, [*agent.targets.parameters(), *agent.target_actor.parameters()]
    assert count.actor == sum(each.numel() for each in agent.policy.parameters())
    assert count.critics == sum(each.numel() for each in agent.critics.parameters())
    assert count.targets == sum(each.numel() for each in targets)
    networks = agent.policy, agent.critics, agent.targets, agent.target_actor, agent._first_critic
    constants = [buffer for network in networks for buffer in network.buffers()]
    learnt = [*agent.policy.parameters(), *agent.critics.parameters()]
    assert td3.ENTRY.network_bytes(sizes.share) == stored_bytes([*constants, *learnt])
    state = [tensor for one in agent.optimizers.values() for tensor in one.tensors()]
    assert td3.ENTRY.optimizer_bytes(sizes.share) == sum(tensor.nbytes for tensor in state)
    parts = {part.name: part.bytes for part in memory.learner_parts(sizes)}
    assert parts["gradients"] == stored_bytes(learnt)
    assert parts["targets"] == stored_bytes(targets)


def test_its_recipes_refuse_what_cannot_be_learnt():
    assert "discrete actions, which TD3 cannot learn" in Sizes(on("CartPole-v1")).unknown
    assert Sizes(on("Pendulum-v1")).unknown == ""
    with pytest.raises(RecipeError, match="one_hot = false leaves the task unknown"):
        recipes.load("td3-mt10").override({"one_hot": "false"}, {"one_hot"})


def on(environment: str) -> recipes.Recipe:
    return recipes.load("td3").override({"environment": environment}, {"environment"})
