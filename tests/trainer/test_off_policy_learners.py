"""What every off-policy learner keeps to, whatever its algorithm."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer import sacs, test_dqn, test_td3
from tests.trainer.off_policy_checks import Draw, Make, Pair, drawn, learnt, teach
from tests.trainer.sacs import same
from trainer.algorithms.off_policy import OffPolicyAgent
from trainer.machine.device import autocast
from trainer.nn import mlp
from trainer.replay import Batch

CPU = torch.device("cpu")
BF16 = {"autocast": lambda: autocast(CPU, "bf16")}


@dataclass(frozen=True)
class Kind:
    """A learner of one configuration.

    Attributes:
        make: makes it, always with the same weights.
        draw: draws a batch of so many rows.
        noise: numbers that an update draws for each number of an action.
    """

    make: Make
    draw: Draw
    noise: int = 1


def of_sac(**changes: object) -> Kind:
    return Kind(partial(sacs.make, replace(sacs.CONFIG, **changes)), partial(sacs.make_batch, ends=True), 2)


def of_td3(**changes: object) -> Kind:
    return Kind(test_td3.maker(replace(test_td3.CONFIG, **changes)), test_td3.draw)


def of_dqn(**changes: object) -> Kind:
    return Kind(test_dqn.maker(replace(test_dqn.CONFIG, **changes)), test_dqn.draw, 0)


KINDS = {
    "sac": of_sac(),
    "sac multi-head": of_sac(heads="multi-head", max_grad_norm=0.5, layer_norm=True),
    "sac strong": of_sac(**sacs.STRONG),
    "td3": of_td3(),
    "td3 varied": of_td3(**test_td3.VARIED),
    "dqn": of_dqn(),
    "dqn varied": of_dqn(**test_dqn.VARIED),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_a_restored_learner_goes_on_as_the_first_would_have(kind: Kind) -> None:
    agent, batches = kind.make(), drawn(kind.draw, 7)
    teach(agent, batches[:3])
    other = kind.make()
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    losses = [teach(learner, batches[3:], 3) for learner in (agent, other)]
    assert all(same(agent.state_dict(), other.state_dict()))
    assert all(same(*losses))


def test_loading_moves_no_tensor(kind: Kind) -> None:
    agent, other, batches = kind.make(), kind.make(), drawn(kind.draw, 2)
    teach(agent, batches)
    teach(other, batches)
    places = [tensor.data_ptr() for tensor in other.tensors()]
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    teach(other, batches)
    assert [tensor.data_ptr() for tensor in other.tensors()] == places


def test_an_update_writes_nothing_but_the_learners_tensors(kind: Kind) -> None:
    agent, batches = kind.make(), drawn(kind.draw, 2 + 4)
    teach(agent, batches[:2])
    kept = [tensor.clone() for tensor in agent.tensors()]
    before = copy.deepcopy(agent.state_dict())
    teach(agent, batches[2:], 2)
    assert not all(same(agent.state_dict(), before))
    for tensor, value in zip(agent.tensors(), kept, strict=True):
        tensor.copy_(value)
    assert all(same(agent.state_dict(), before))


POISONS = {
    "observation": float("nan"),
    "action": float("inf"),  # a choice of DQN is always finite
    "reward": float("nan"),
    "next_observation": float("-inf"),
}


@pytest.mark.parametrize("how", [{}, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name in KINDS for field in POISONS if field != "action" or KINDS[name].noise],
)
def test_an_update_that_is_not_finite_changes_nothing(name: str, field: str, how: dict[str, object]) -> None:
    kind = KINDS[name]
    agent, spared = kind.make(**how), kind.make(**how)
    batches = drawn(kind.draw, 2 + 2)
    for learner in (agent, spared):
        teach(learner, batches[:2])
    before = learnt(agent)
    poisoned = batches[2]._replace(**{field: getattr(batches[2], field).clone()})
    getattr(poisoned, field)[7] = POISONS[field]
    for times in (1, 2):
        teach(agent, [poisoned], begin=1 + times)
        assert agent.skipped.tolist() == [times, times]
    assert all(same(learnt(agent), before))
    for learner in (agent, spared):
        teach(learner, batches[2:], 2)
    assert all(same(learnt(agent), learnt(spared)))
    assert agent.skipped.tolist() == [2, 0]


@pytest.mark.parametrize("parts", [2, 5])
def test_a_batch_in_parts_teaches_what_the_whole_batch_does(kind: Kind, parts: int) -> None:
    whole, split = kind.make(), kind.make(micro_batches=parts)
    batches = drawn(kind.draw, 4, rows=24)
    losses = [teach(learner, batches) for learner in (whole, split)]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole.tensors(), split.tensors(), rtol=1e-4, atol=1e-5)


def test_rewards_are_multiplied_by_the_newest_factor_of_their_task(kind: Kind) -> None:
    tasks = 1 + int(kind.draw(12).task.max())
    factor = torch.ones(tasks)
    agent, other = kind.make(reward_factor=factor), kind.make()
    for number, batch in enumerate(drawn(kind.draw, 2)):
        factor.copy_(torch.tensor([0.5, 2.0, 3.0])[:tasks] * (number + 1))
        by_hand = batch._replace(reward=batch.reward * factor[batch.task])
        teach(agent, [batch], number)
        teach(other, [by_hand], number)
    assert all(same(agent.state_dict(), other.state_dict()))


def test_two_learners_with_half_the_batch_learn_what_one_learns(kind: Kind) -> None:
    def teach_rows(agent: OffPolicyAgent, batch: Batch, number: int, rows: slice) -> None:
        if kind.noise:  # each takes its rows' part of what one would draw for all
            generator = torch.Generator().manual_seed(number)
            shape = (kind.noise, *batch.action.shape) if kind.noise > 1 else batch.action.shape
            agent._noise = lambda _: torch.randn(shape, generator=generator)[..., rows, :]
        agent.update(Batch(*(tensor[rows] for tensor in batch.tensors)), number % agent.turns)

    whole, batches = kind.make(), drawn(kind.draw, 4, rows=24)
    batches[1].reward[-1] = torch.nan  # of which the first half knows nothing
    pair = Pair()
    halves = [kind.make(average=pair.average(rank)) for rank in range(2)]

    def learn(rank: int) -> None:
        for number, batch in enumerate(batches):
            teach_rows(halves[rank], batch, number, slice(rank, None, 2))

    threads = [threading.Thread(target=learn, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for number, batch in enumerate(batches):
        teach_rows(whole, batch, number, slice(None))
    for thread in threads:
        thread.join()
    assert [learner.skipped[0] for learner in (whole, *halves)] == [1, 1, 1]
    assert all(same(halves[0].tensors(), halves[1].tensors()))
    torch.testing.assert_close(whole.tensors(), halves[0].tensors(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sac", "td3", "td3 varied"])
def test_where_only_the_actor_overflows_only_the_critics_step(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS[name]
    agent, spared = kind.make(), kind.make()
    batches = drawn(kind.draw, agent.turns)
    for learner in (agent, spared):
        teach(learner, batches[:-1])
    monkeypatch.setattr(
        agent, "_actor_loss", lambda part: type(agent)._actor_loss(agent, part) * float("inf")
    )
    before = learnt(agent)
    for learner in (agent, spared):
        teach(learner, batches[-1:], agent.turns - 1)
    moved = {name for name, value in learnt(agent).items() if not all(same(value, before[name]))}
    assert moved == {"critics", "optimizers"}
    assert all(same(agent.critics.state_dict(), spared.critics.state_dict()))
    assert agent.skipped.tolist() == [1, 1]


def test_under_bfloat16_targets_losses_and_parameters_stay_float32(kind: Kind) -> None:
    found: list[list[Tensor]] = []
    for how in ({}, BF16):
        agent, targets = kind.make(**how), []
        td_target = agent._td_target
        agent._td_target = lambda *given, td=td_target, into=targets: into.append(td(*given)) or into[-1]
        for losses in teach(agent, drawn(kind.draw, agent.turns, rows=256)):
            assert {loss.dtype for loss in losses.values()} == {torch.float32}
        assert {target.dtype for target in targets} == {torch.float32}
        found.append(targets[:1])
    assert all(tensor.dtype == torch.float32 for tensor in agent.tensors() if tensor.is_floating_point())
    # the matrix products are rounded, the arithmetic after them is not: gamma 0.9 would become 0.898
    torch.testing.assert_close(*found, rtol=0.05, atol=0.05)


def test_gradients_lie_in_memory_as_their_parameters_do(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fused optimisers on a GPU take them."""
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", False)
    agent = kind.make()
    teach(agent, drawn(kind.draw, agent.turns))
    for optimizer in agent.optimizers.values():
        for parameter in optimizer.parameters:
            assert parameter.grad.stride() == parameter.stride()


def test_the_policy_acts_on_arrays_as_on_tensors(kind: Kind) -> None:
    policy, batch = kind.make().policy, kind.draw(50)
    arrays = batch.observation.numpy(), batch.task.int().numpy()
    greedy = policy.act(*arrays, greedy=True)
    assert np.array_equal(greedy, policy.mode(batch.observation, batch.task).numpy())
    torch.manual_seed(3)
    sampled = policy.act(*arrays, greedy=False)
    torch.manual_seed(3)
    noise = policy.draw_noise(50)
    assert np.array_equal(sampled, policy.sample(batch.observation, batch.task, noise).numpy())
    assert not np.array_equal(sampled, greedy)


def test_the_policy_draws_uniform_actions_for_the_warm_up(kind: Kind) -> None:
    actions = kind.make().policy.uniform(np.random.default_rng(0), 4000)
    assert actions.dtype == np.float32
    if kind.noise:
        assert actions.shape == (4000, sacs.ACTION)
        assert -1 <= actions.min() < -0.9 < 0.9 < actions.max() <= 1
    else:
        assert actions.shape == (4000, 1)
        assert np.bincount(actions[:, 0].astype(int)).min() > 900
