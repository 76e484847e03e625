from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from tests.trainer.textbooks import second_step
from trainer.algorithms.on_policy import OnPolicy
from trainer.algorithms.on_policy_config import A2CConfig, PPOConfig, make_actor_critic
from trainer.algorithms.ppo_learner import A2C, PPO
from trainer.envs.spaces import ActionSpace
from trainer.replay.rollout import Ends, Rollout, Transitions, advantages, discounted_returns

SHARED = {
    "hidden": (16, 16),
    "activation": "tanh",
    "initial_log_std": -0.3,
    "learning_rate": 1e-2,
    "learning_rate_schedule": "linear",
    "max_grad_norm": 0.5,
    "gamma": 0.97,
    "gae_lambda": 0.9,
    "entropy_coefficient": 0.01,
    "entropy_schedule": "linear",
    "value_coefficient": 0.5,
    "normalize_observations": False,
    "normalize_rewards": False,
}
PPO_CONFIG = PPOConfig(
    **SHARED, adam_eps=1e-5, clip_range=0.2, value_clip_range=0.3, target_kl=0.0, normalize_advantages=True
)
A2C_CONFIG = A2CConfig(
    **SHARED, optimizer="rmsprop", optimizer_eps=1e-5, rmsprop_alpha=0.99, normalize_advantages=False
)
BOX = ActionSpace("box", low=(-1.0, -1.0), high=(1.0, 1.0))
CHOICES = ActionSpace("discrete", nvec=(3, 2), start=(0, 0))
CPU = torch.device("cpu")
STEPS, ENVS, OBSERVATION = 8, 4, 5


def make(config: PPOConfig | A2CConfig, actions: ActionSpace = BOX, seed: int = 0) -> OnPolicy:
    torch.manual_seed(seed)
    policy = make_actor_critic(config, OBSERVATION, actions)
    kind = PPO if isinstance(config, PPOConfig) else A2C
    return kind(config, policy, ENVS, nullcontext)


def lived(actions: ActionSpace = BOX) -> Rollout:
    """A rollout of random numbers."""
    rollout = Rollout(STEPS, ENVS, OBSERVATION, actions.dim, CPU)
    for _ in range(STEPS):
        numbers = torch.randn(ENVS, actions.dim)
        chosen = numbers if actions.kind == "box" else numbers.gt(0).float()
        seen, next_seen = torch.randn(2, ENVS, OBSERVATION).numpy()
        ends = torch.rand(2, ENVS).lt(0.1).numpy()
        rollout.add(seen, chosen.numpy(), torch.randn(ENVS).numpy(), next_seen, *ends)
    rollout.hand_over()
    return rollout


def batch_of(agent: OnPolicy, rollout: Rollout) -> Transitions:
    return agent.pack(agent.estimate(rollout)).batch()


def textbook(agent: OnPolicy, batch: Transitions, actions: ActionSpace) -> tuple[Tensor, Tensor, Tensor]:
    """Log-densities, entropies and values of a batch, with PyTorch's own distributions."""
    outputs = agent.policy.actor(batch.features)
    value = agent.policy.critic(batch.features)[:, 0]
    if actions.kind == "box":
        peer = Normal(outputs, agent.policy.head.log_std.exp())
        return peer.log_prob(batch.action).sum(-1), peer.entropy().sum(-1), value
    peers = [Categorical(logits=part) for part in outputs.split(list(actions.nvec), -1)]
    log_density = sum(p.log_prob(a) for p, a in zip(peers, batch.action.long().unbind(-1), strict=True))
    return log_density, sum(p.entropy() for p in peers), value


@pytest.mark.parametrize("actions", [BOX, CHOICES], ids=["box", "choices"])
def test_a_ppo_update_is_the_textbooks(actions: ActionSpace) -> None:
    agent = make(PPO_CONFIG, actions)
    batch = batch_of(agent, lived(actions))
    agent.update(batch)  # so that the ratio is not 1 everywhere
    plain = copy.deepcopy(agent)
    order = [*plain.policy.actor.parameters(), *plain.policy.critic.parameters()]
    order += plain.policy.head.parameters()
    parameters = [each.detach().clone() for each in order]
    state = copy.deepcopy(agent._optimizer.state_dict())["state"][0]

    scalars = agent.update(batch)

    log_density, entropy, value = textbook(plain, batch, actions)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = (log_density - batch.log_density).exp()
    policy_loss = -torch.min(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)).mean()
    near = batch.value + (value - batch.value).clamp(-0.3, 0.3)
    value_loss = torch.max((value - batch.target) ** 2, (near - batch.target) ** 2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * entropy.mean()
    gradients = torch.autograd.grad(loss, order)
    gradient = torch.cat([each.flatten() for each in gradients])
    step = second_step(gradient, state, 0.5)
    expected = torch.cat([each.flatten() for each in parameters]) - step

    torch.testing.assert_close(agent._flat, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(scalars["loss/policy"], policy_loss.detach())
    torch.testing.assert_close(scalars["loss/value"], value_loss.detach())
    torch.testing.assert_close(scalars["grad_norm"], gradient.norm())


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a2c_updates_are_those_of_pytorchs_optimisers(optimizer: str) -> None:
    config = replace(A2C_CONFIG, optimizer=optimizer)
    agent, plain = make(config, CHOICES), make(config, CHOICES)
    own = [torch.nn.Parameter(each.detach().clone()) for each in plain.policy.parameters()]
    peer = (
        torch.optim.RMSprop(own, 1e-2, alpha=0.99, eps=1e-5)
        if optimizer == "rmsprop"
        else torch.optim.Adam(own, 1e-2, eps=1e-5)
    )
    for seed in range(3):
        torch.manual_seed(seed)
        batch = batch_of(agent, lived(CHOICES))
        with torch.no_grad():
            for parameter, value in zip(plain.policy.parameters(), own, strict=True):
                parameter.copy_(value)
        log_density, entropy, value = textbook(plain, batch, CHOICES)
        value_loss = (value - batch.target).square().mean()
        loss = -(batch.advantage * log_density).mean() + 0.5 * value_loss - 0.01 * entropy.mean()
        gradients = torch.autograd.grad(loss, list(plain.policy.parameters()))
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(own, 0.5)
        peer.step()
        agent.update(batch)
    for found, expected in zip(agent.policy.parameters(), own, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_the_estimates_are_those_of_the_networks() -> None:
    agent, rollout = make(PPO_CONFIG), lived()
    batch = batch_of(agent, rollout)
    log_density, _, value = textbook(agent, batch, BOX)
    torch.testing.assert_close(batch.log_density, log_density)
    torch.testing.assert_close(batch.value, value)
    torch.testing.assert_close(batch.target, batch.value + batch.advantage)
    assert torch.equal(batch.features.view_as(rollout.observation), rollout.observation)


def test_schedules_move_learning_rate_and_entropy_weight() -> None:
    agent = make(PPO_CONFIG)
    agent.schedule(0.25)
    assert float(agent.learning_rate) == pytest.approx(0.0025)
    assert float(agent._entropy_weight) == pytest.approx(0.0025)
    before = agent._flat.clone()
    agent.schedule(0.0)
    agent.update(batch_of(agent, lived()))
    assert torch.equal(agent._flat, before)


def test_a_policy_that_has_moved_far_enough_stops() -> None:
    agent = make(replace(PPO_CONFIG, target_kl=1e-3))
    rollout = lived()
    batch = batch_of(agent, rollout)
    updates = 0
    while not agent.stopped:
        before = agent._flat.clone()
        agent.update(batch)
        updates += 1
    assert updates > 1
    assert torch.equal(agent._flat, before)
    assert agent.skipped.tolist() == [0, 0]
    agent.estimate(rollout)
    assert not agent.stopped


@pytest.mark.parametrize("config", [PPO_CONFIG, A2C_CONFIG], ids=["ppo", "a2c"])
def test_what_is_not_finite_changes_nothing(config: PPOConfig | A2CConfig) -> None:
    agent = make(config)
    batch = batch_of(agent, lived())
    agent.update(batch)
    kept = [tensor.clone() for tensor in agent.tensors()[:-2]]
    agent.update(batch._replace(target=batch.target * math.nan))
    assert all(map(torch.equal, agent.tensors()[:-2], kept))
    assert agent.skipped.tolist() == [1, 1]
    agent.update(batch)
    assert agent.skipped.tolist() == [1, 0]


def test_standardised_rewards_have_the_deviation_of_the_return() -> None:
    agent = make(replace(PPO_CONFIG, normalize_rewards=True, gae_lambda=0.0))
    rollout = lived()
    rollout.reward.mul_(1000.0)
    batch = batch_of(agent, rollout)
    assert batch.target.abs().max() < 20


@pytest.mark.parametrize("config", [PPO_CONFIG, A2C_CONFIG], ids=["ppo", "a2c"])
def test_a_state_goes_on_to_the_bit(config: PPOConfig | A2CConfig) -> None:
    config = replace(config, normalize_rewards=True, normalize_observations=True)
    agent, rollout = make(config), lived()
    agent.policy.moments.merge(rollout.observation.flatten(0, 1))
    agent.update(batch_of(agent, rollout))
    other = make(config, seed=1)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for each in (agent, other):
        each.update(batch_of(each, rollout))
    assert all(map(torch.equal, agent.tensors(), other.tensors()))


GAMMA, LAMBDA = 0.97, 0.9


def rollout(steps: int) -> tuple[Tensor, Tensor, Tensor, Ends]:
    """Rewards, values and next values, and where episodes end."""
    torch.manual_seed(steps)
    terminated = (torch.rand(steps, 3) < 0.1).float()
    done = torch.maximum(terminated, (torch.rand(steps, 3) < 0.1).float())
    return *torch.randn(3, steps, 3), Ends(terminated, done)


@pytest.mark.parametrize("steps", [1, 2, 5, 64, 100])
def test_advantages_are_those_of_the_recursion(steps: int) -> None:
    reward, value, next_value, ends = rollout(steps)
    expected = torch.zeros(steps, 3)
    following = torch.zeros(3)
    for t in reversed(range(steps)):
        surprise = reward[t] + GAMMA * next_value[t] * (1 - ends.terminated[t]) - value[t]
        following = expected[t] = surprise + GAMMA * LAMBDA * (1 - ends.done[t]) * following
    torch.testing.assert_close(advantages(reward, value, next_value, ends, GAMMA, LAMBDA), expected)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_discounted_returns_are_those_of_the_recursion(steps: int) -> None:
    reward, _, _, ends = rollout(steps)
    running = before = torch.tensor([1.0, 2.0, 3.0])
    expected = []
    for t in range(steps):
        running = reward[t] + GAMMA * running
        expected.append(running)
        running = running * (1 - ends.done[t])
    sums, after = discounted_returns(reward, before, ends.done, GAMMA)
    torch.testing.assert_close(sums, torch.stack(expected))
    torch.testing.assert_close(after, running)
