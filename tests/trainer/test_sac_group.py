"""SAC of several seeds in one update: what each learns is what it learns alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer.sacs import ACTION, CONFIG, OBSERVATION, STRONG, TASKS, make_batch, same
from trainer.algorithms.acting import Acting
from trainer.algorithms.kernels.plain import plain
from trainer.algorithms.sac_explicit import constants
from trainer.algorithms.sac_learner import SAC, SACGroup
from trainer.loops.generators import Stream
from trainer.nn import mlp
from trainer.replay import Batch

CPU = torch.device("cpu")
SEEDS = 3


def seeded(seed: int) -> Stream:
    stream = Stream(CPU)
    with stream:
        torch.manual_seed(seed)
    return stream


def make_agents(config, **how) -> list[SAC]:
    agents = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        factor = torch.rand(TASKS)
        agents.append(SAC(config, OBSERVATION, ACTION, TASKS, reward_factor=factor, **how))
    return agents


def together(batches: list[Batch]) -> Batch:
    return Batch(*map(torch.stack, zip(*(batch.tensors for batch in batches), strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize(
    ("changes", "ends", "parts"),
    [
        ({}, False, 1),
        ({"max_grad_norm": 0.05}, True, "explicit"),
        ({"heads": "multi-head", "temperature": "shared"}, False, "explicit"),
        ({"layer_norm": True, "max_grad_norm": 0.05}, False, 3),
        ({"heads": "multi-head"}, True, 1),
        ({"heads": "multi-head", "actor_hidden": (16, 512)}, False, 2),
        (STRONG, False, 2),
        ({**STRONG, "critic_reduction": "min", "heads": "multi-head"}, True, 1),
    ],
    ids=str,
)
def test_each_seed_learns_what_it_learns_alone_whatever_another_is_given(
    monkeypatch, changes, ends, parts, onednn
):
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", onednn)
    config = replace(CONFIG, **changes)
    how = {"micro_batches": parts}
    if parts == "explicit":
        how = {"operations": plain(constants(config, ACTION))}
    alone, grouped = (make_agents(config, **how) for _ in range(2))
    streams, others = ([seeded(10 + seed) for seed in range(SEEDS)] for _ in range(2))
    group = SACGroup(grouped, others)
    for update in range(4):
        torch.manual_seed(update)
        batches = [make_batch(12, ends=ends) for _ in range(SEEDS)]
        if update == 1:
            batches[1].reward[2] = torch.nan
        expected = []
        for agent, stream, batch in zip(alone, streams, batches, strict=True):
            with stream:
                expected.append(agent.update(batch))
        found = group.update(together(batches))
        for name, values in found.items():
            wanted = torch.stack([each[name] for each in expected])
            torch.testing.assert_close(values, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert [agent.skipped.tolist() for agent in grouped] == [[0, 0], [1, 0], [0, 0]]
    for agent, reference in zip(grouped, alone, strict=True):
        torch.testing.assert_close(agent.tensors(), reference.tensors(), rtol=1e-4, atol=1e-5)
    assert all(same([stream._state for stream in others], [stream._state for stream in streams]))


def test_who_leaves_has_tensors_of_its_own_and_goes_on():
    grouped, alone = make_agents(CONFIG), make_agents(CONFIG)
    streams, others = ([seeded(seed) for seed in range(SEEDS)] for _ in range(2))
    group = SACGroup(grouped, others)
    batch = make_batch()
    group.update(together([batch] * SEEDS))
    stored = grouped[0].state_dict()
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in stored["critics"].values())
    group.leave()
    for tensor in grouped[0].tensors():
        assert tensor.untyped_storage().nbytes() <= max(tensor.nbytes, 8)
    for agents, within in ((grouped, others), (alone, streams)):
        for agent, stream in zip(agents, within, strict=True):
            with stream:
                for _ in range(2 if agents is alone else 1):
                    agent.update(batch)
    for agent, reference in zip(grouped, alone, strict=True):
        torch.testing.assert_close(agent.tensors(), reference.tensors(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lag", [0, 1])
def test_who_acts_finds_the_weights_where_they_have_been_moved(lag):
    grouped = make_agents(CONFIG)
    acting = Acting(grouped[1].policy, 4, OBSERVATION, lag=lag)
    group = SACGroup(grouped, [seeded(seed) for seed in range(SEEDS)])
    for _ in range(2):
        group.update(together([make_batch() for _ in range(SEEDS)]))
        acting.learnt()
    if lag:
        assert all(same(acting.state_dict()["newest"], [*grouped[1].policy.state_dict().values()]))
    seen, task = np.zeros((4, OBSERVATION), np.float32), np.zeros(4, np.int32)
    group.leave()
    torch.manual_seed(0)
    action = acting.act(seen, task)
    torch.manual_seed(0)
    noise = torch.randn(4, ACTION)
    expected = acting._placement._actor.sample(torch.from_numpy(seen), torch.from_numpy(task).long(), noise)
    assert np.array_equal(action, expected.numpy())
