import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from tests.trainer.sacs import ACTION, CONFIG, OBSERVATION, STRONG, TASKS, make, make_batch, same
from tests.trainer.textbook_sac import TextbookSAC
from trainer.algorithms.sac_learner import SAC
from trainer.machine.device import autocast


@pytest.mark.slow
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
def test_updates_equal_a_plain_implementation(changes, ends):
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


@pytest.mark.slow
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


@pytest.mark.slow
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
