import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.utils._pytree import tree_leaves

from trainer.algorithms.sac import SAC, SACConfig
from trainer.device import autocast
from trainer.replay import Batch

CONFIG = SACConfig(
    heads="one-hot",
    one_hot=True,
    actor_hidden=(16, 16),
    critic_hidden=(24, 24),
    layer_norm=False,
    init="he_uniform",
    actor_learning_rate=1e-3,
    critic_learning_rate=2e-3,
    alpha_learning_rate=3e-3,
    adam_eps=1e-5,
    gamma=0.9,
    tau=0.05,
    initial_alpha=0.4,
    target_entropy=-2.0,
    max_grad_norm=0.0,
    log_std_min=-20.0,
    log_std_max=2.0,
    reward_scale=1.0,
)
STRONG = {
    "critic_network": "residual",
    "critic_reduction": "mean",
    "layer_norm": True,
    "value_bins": 21,
    "value_bound": 5.0,
    "value_smoothing": 0.75,
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
}
"""What goes beyond the paper, all at once."""
TASKS, OBSERVATION, ACTION = 3, 5, 2


def make(config: SACConfig, autocasting=nullcontext) -> SAC:
    torch.manual_seed(0)
    agent = SAC(config, OBSERVATION, ACTION, TASKS, autocast=autocasting)
    # output layers large enough that every term of every loss matters
    for network in (agent.policy.actor, agent.critics, agent.targets):
        for last in (network.weights[-1], network.biases[-1]):
            last.data.uniform_(-0.5, 0.5)
    return agent


def make_batch(size: int = 12, *, ends: bool = False) -> Batch:
    return Batch(
        torch.randn(size, OBSERVATION),
        torch.rand(size, ACTION) * 2 - 1,
        torch.randn(size),
        torch.randn(size, OBSERVATION),
        torch.arange(size) % TASKS,
        (torch.arange(size) % 5 > 0).float() if ends else None,
    )


def same(left, right) -> list[bool]:
    """Compares two nests of tensors, leaf by leaf, to the bit."""
    leaves, others = tree_leaves(left), tree_leaves(right)
    assert len(leaves) == len(others)
    pairs = zip(leaves, others, strict=True)
    return [torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs]


class Reference:
    """SAC as in a textbook: one network after the other, plain Adam, distributions from PyTorch."""

    def __init__(self, agent: SAC, config: SACConfig) -> None:
        self.config = config
        self.actor = copy.deepcopy(agent.policy)
        self.critics = copy.deepcopy(agent.critics)
        self.targets = copy.deepcopy(agent.targets)
        self.log_alpha = agent.log_alpha.detach().clone().requires_grad_()
        eps = config.adam_eps
        decayed = partial(torch.optim.AdamW, eps=eps, weight_decay=config.weight_decay)
        self.actor_adam = decayed(self.actor.parameters(), config.actor_learning_rate)
        self.critic_adam = decayed(self.critics.parameters(), config.critic_learning_rate)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], config.alpha_learning_rate, eps=eps)

    def features(self, observation, task):
        return torch.cat([observation, torch.eye(TASKS)[task]], 1)

    def act(self, observation, task, noise):
        mean, log_std = self.actor.actor(self.features(observation, task), task)[0].chunk(2, -1)
        std = log_std.clamp(-20, 2).exp()
        squash = TanhTransform(cache_size=1)
        policy = TransformedDistribution(Independent(Normal(mean, std), 1), [squash])
        action = squash(mean + std * noise)
        return action, policy.log_prob(action)

    def outputs(self, critics, observation, action, task):
        rows = torch.cat([self.features(observation, task), action], 1)
        return critics(rows, task)

    def q(self, critics, observation, action, task):
        outputs = self.outputs(critics, observation, action, task)
        if not self.config.value_bins:
            return outputs[:, :, 0]
        return (outputs.softmax(-1) * self.values()).sum(-1)

    def values(self):
        return torch.linspace(-self.config.value_bound, self.config.value_bound, self.config.value_bins)

    def reduce(self, values):
        return values.min(0).values if self.config.critic_reduction == "min" else values.mean(0)

    def critic_loss(self, batch, target):
        if not self.config.value_bins:
            first, second = self.q(self.critics, batch.observation, batch.action, batch.task)
            return 0.5 * (((first - target) ** 2).mean() + ((second - target) ** 2).mean())
        width = 2 * self.config.value_bound / (self.config.value_bins - 1)
        bound = self.config.value_bound
        spread = Normal(target.clamp(-bound, bound)[:, None], self.config.value_smoothing * width)
        edges = torch.cat([self.values() - width / 2, self.values()[-1:] + width / 2])
        mass = spread.cdf(edges).diff(dim=1)
        mass = mass / mass.sum(1, keepdim=True)
        outputs = self.outputs(self.critics, batch.observation, batch.action, batch.task)
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), mass.repeat(2, 1))

    def update(self, batch: Batch) -> None:
        config, task = self.config, batch.task
        alpha = self.log_alpha.exp().detach()[task]
        noise, next_noise = torch.randn(2, *batch.action.shape)
        with torch.no_grad():
            action, log_density = self.act(batch.next_observation, task, next_noise)
            value = self.reduce(self.q(self.targets, batch.next_observation, action, task))
            value = value - alpha * log_density
            if batch.goes_on is not None:
                value[batch.goes_on == 0] = 0.0
            target = config.reward_scale * batch.reward + config.gamma * value
        self.descend(self.critic_adam, self.critic_loss(batch, target), self.critics.parameters())
        with torch.no_grad():
            for slow, fast in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                slow.copy_((1 - config.tau) * slow + config.tau * fast)
        action, log_density = self.act(batch.observation, task, noise)
        value = self.reduce(self.q(self.critics, batch.observation, action, task))
        self.descend(self.actor_adam, (alpha * log_density - value).mean(), self.actor.parameters())
        loss = (-self.log_alpha[task] * (log_density.detach() + config.target_entropy)).mean()
        self.descend(self.alpha_adam, loss, None)

    def descend(self, adam, loss, clipped) -> None:
        adam.zero_grad()
        loss.backward()
        if clipped is not None and self.config.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(list(clipped), self.config.max_grad_norm)
        adam.step()


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
    ],
    ids=str,
)
def test_updates_equal_a_plain_implementation(changes, ends):
    config = replace(CONFIG, **changes)
    agent = make(config)
    reference = Reference(agent, config)
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
    torch.testing.assert_close(agent.log_alpha, reference.log_alpha, rtol=1e-4, atol=1e-5)


def test_where_the_recipe_names_no_entropy_it_is_minus_the_count_of_numbers():
    told, untold = (make(replace(CONFIG, target_entropy=entropy)) for entropy in (-float(ACTION), None))
    batch = make_batch()
    for agent in (told, untold):
        torch.manual_seed(1)
        agent.update(batch)
    assert torch.equal(told.log_alpha, untold.log_alpha)


def test_each_task_has_a_temperature_of_its_own():
    agent = make(CONFIG)
    only_task_1 = make_batch()._replace(task=torch.ones(12, dtype=torch.int64))
    agent.update(only_task_1)
    start = torch.tensor(0.4)
    assert agent.alpha[1] != start
    torch.testing.assert_close(agent.alpha[[0, 2]], start.expand(2))


def test_the_actor_loss_reaches_the_actor_and_leaves_the_critics_alone():
    agent = make(CONFIG)
    (part,) = [agent._play(*part, agent.alpha) for part in agent._split(make_batch())]
    agent._actor_loss(part).backward()
    assert all(parameter.grad is not None for parameter in agent.policy.parameters())
    assert all(parameter.grad is None for parameter in agent.critics.parameters())


@pytest.mark.parametrize("changes", [{}, STRONG], ids=["plain", "strong"])
def test_targets_and_losses_stay_float32_under_bfloat16(changes):
    config = replace(CONFIG, **changes)
    exact = make(config)
    rounded = make(config, lambda: autocast(torch.device("cpu"), "bf16"))
    torch.manual_seed(1)
    batch = make_batch(256)

    def td_target(agent: SAC) -> torch.Tensor:
        torch.manual_seed(2)
        (part,) = agent._split(batch)
        return agent._td_target(agent._play(*part, agent.alpha))

    expected, target = td_target(exact), td_target(rounded)
    assert target.dtype == torch.float32
    # the matrix products are rounded, the arithmetic after them is not: gamma 0.9 would become 0.898
    torch.testing.assert_close(target, expected, rtol=0.05, atol=0.05)
    losses = rounded.update(batch)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in rounded.critics.parameters())


@pytest.mark.parametrize("changes", [{}, STRONG], ids=["plain", "strong"])
def test_a_restored_learner_goes_on_as_the_first_would_have(changes):
    config = replace(CONFIG, **changes)
    agent = make(config)
    torch.manual_seed(1)
    batches = [make_batch() for _ in range(6)]
    for batch in batches[:3]:
        agent.update(batch)
    torch.manual_seed(5)
    other = SAC(config, OBSERVATION, ACTION, TASKS)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for learner in (agent, other):
        torch.manual_seed(7)
        for batch in batches[3:]:
            learner.update(batch)
    for left, right in zip(agent.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(left, right)
    assert torch.equal(agent.log_alpha, other.log_alpha)


def test_loading_moves_no_tensor():
    agent, other = make(CONFIG), make(CONFIG)
    batch = make_batch()
    agent.update(batch)
    other.update(batch)
    places = [tensor.data_ptr() for tensor in other.tensors()]
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    other.update(batch)
    assert [tensor.data_ptr() for tensor in other.tensors()] == places


def test_its_tensors_are_all_that_an_update_writes():
    agent = make(CONFIG)
    batch = make_batch()
    agent.update(batch)
    kept = [tensor.clone() for tensor in agent.tensors()]
    before = copy.deepcopy(agent.state_dict())
    torch.manual_seed(3)
    agent.update(batch)
    assert not all(same(agent.state_dict(), before))
    for tensor, value in zip(agent.tensors(), kept, strict=True):
        tensor.copy_(value)
    assert all(same(agent.state_dict(), before))


POISONS = {
    "observation": float("nan"),
    "action": float("inf"),
    "reward": float("nan"),
    "next_observation": float("-inf"),
}


@pytest.mark.parametrize("autocasting", [nullcontext, lambda: torch.autocast("cpu", torch.bfloat16)])
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "observation"),
        ({"max_grad_norm": 0.5}, "action"),
        ({"heads": "multi-head", "max_grad_norm": 0.5}, "reward"),
        ({"layer_norm": True}, "next_observation"),
        (STRONG, "next_observation"),
        (STRONG, "reward"),
        ({**STRONG, "value_smoothing": 0.0}, "action"),
    ],
    ids=str,
)
def test_an_update_that_is_not_finite_changes_nothing(changes, field, autocasting):
    agent = make(replace(CONFIG, **changes), autocasting)
    spared = make(replace(CONFIG, **changes), autocasting)
    batch = make_batch()
    for learner in (agent, spared):
        torch.manual_seed(3)
        learner.update(batch)
    before = copy.deepcopy(agent.state_dict())
    poisoned = batch._replace(**{field: getattr(batch, field).clone()})
    getattr(poisoned, field)[7] = POISONS[field]
    for times in (1, 2):
        agent.update(poisoned)
        assert agent.skipped.tolist() == [times, times]
    agent.skipped.zero_()
    assert all(same(agent.state_dict(), before))
    for learner in (agent, spared):
        torch.manual_seed(4)
        learner.update(batch)
    assert all(same(agent.state_dict(), spared.state_dict()))


def test_a_skip_is_counted_and_a_row_of_them_ends_with_the_next_update():
    agent = make(CONFIG)
    batch = make_batch()
    poisoned = batch._replace(reward=batch.reward * float("nan"))
    for each in (poisoned, poisoned, batch, poisoned):
        losses = agent.update(each)
    assert agent.skipped.tolist() == [3, 1]
    assert losses["loss/critic"].isnan()
    other = make(CONFIG)
    other.load_state_dict(agent.state_dict())
    assert other.skipped.tolist() == [3, 1]


def test_what_overflows_only_in_the_gradient_is_skipped_too():
    agent = make(CONFIG)
    before = copy.deepcopy(agent.state_dict())
    batch = make_batch()
    losses = agent.update(batch._replace(observation=batch.observation * 1e17))
    assert losses["loss/critic"].isfinite()
    assert losses["grad_norm/critic"].isinf()
    agent.skipped.zero_()
    assert all(same(agent.state_dict(), before))


def test_should_only_the_actor_overflow_then_only_the_critics_step(monkeypatch):
    agent, spared = make(CONFIG), make(CONFIG)
    batch = make_batch()
    monkeypatch.setattr(agent, "_actor_loss", lambda part: SAC._actor_loss(agent, part) * float("inf"))
    before = copy.deepcopy(agent.state_dict())
    for learner in (agent, spared):
        torch.manual_seed(3)
        learner.update(batch)
    assert all(same(agent.critics.state_dict(), spared.critics.state_dict()))
    after = agent.state_dict()
    for untouched in ("policy", "targets", "log_alpha"):
        assert all(same(after[untouched], before[untouched]))
    assert agent.skipped.tolist() == [1, 1]


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("changes", [{}, {"heads": "multi-head", "max_grad_norm": 0.5}, STRONG], ids=str)
def test_a_batch_in_parts_teaches_what_the_whole_batch_does(parts, changes):
    config = replace(CONFIG, **changes)
    whole = make(config)
    torch.manual_seed(0)
    split = SAC(config, OBSERVATION, ACTION, TASKS, micro_batches=parts)
    split.load_state_dict(whole.state_dict())
    for seed in range(3):
        torch.manual_seed(seed)
        batch = make_batch(24)
        logs = []
        for learner in (whole, split):
            torch.manual_seed(seed)
            logs.append(learner.update(batch))
        torch.testing.assert_close(logs[0], logs[1], rtol=1e-4, atol=1e-5)
    for left, right in zip(whole.tensors(), split.tensors(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_rewards_are_multiplied_by_the_newest_factor_of_their_task():
    torch.manual_seed(1)
    batch = make_batch()
    factor = torch.ones(TASKS)
    torch.manual_seed(0)
    agent = SAC(CONFIG, OBSERVATION, ACTION, TASKS, reward_factor=factor)
    other = SAC(CONFIG, OBSERVATION, ACTION, TASKS)
    for values in ([1.0, 1.0, 1.0], [0.5, 2.0, 3.0]):
        factor.copy_(torch.tensor(values))
        other.load_state_dict(agent.state_dict())
        by_hand = batch._replace(reward=batch.reward * torch.tensor(values)[batch.task])
        for learner, given in ((agent, batch), (other, by_hand)):
            torch.manual_seed(2)
            learner.update(given)
        assert all(same(agent.state_dict(), other.state_dict()))


def test_a_decayed_update_that_is_skipped_decays_nothing():
    agent = make(replace(CONFIG, weight_decay=0.5))
    before = copy.deepcopy(agent.state_dict())
    batch = make_batch()
    agent.update(batch._replace(reward=batch.reward * float("nan")))
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


def test_greedy_actions_are_deterministic_and_sampled_ones_are_not():
    agent = make(CONFIG)
    batch = make_batch()
    policy = agent.policy
    assert torch.equal(policy.mode(batch.observation, batch.task), policy.mode(batch.observation, batch.task))
    first = policy.sample(batch.observation, batch.task)
    assert not torch.equal(first, policy.sample(batch.observation, batch.task))
    assert first.abs().max() < 1
