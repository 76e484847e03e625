"""Learning in a second, on a problem that cannot be solved without knowing the task.

On Meta-World the positions of the objects give the task away, so only these prove that its id is used.
Contexts are uniform in (-0.8, 0.8)^2 and fresh at each step; the reward is one minus the squared distance
to a target. The gates hold with a margin of 0.03 over six seeds: at least 0.90 for the worst task with
the id, at most 0.60 without it.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer import sacs, test_td3
from trainer.algorithms.sac_learner import SAC
from trainer.algorithms.td3_update import TD3
from trainer.replay import Replay

WARMUP, UPDATES, ENVS = 10, 150, 30
QUICK = {
    "actor_hidden": (32, 32),
    "critic_hidden": (32, 32),
    "init": "fan_in_uniform",
    "actor_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "adam_eps": 1e-8,
}
CONFIG = replace(sacs.CONFIG, **QUICK, alpha_learning_rate=1e-2, initial_alpha=0.1)


def turned_targets(context: np.ndarray, task: np.ndarray) -> np.ndarray:
    """The context itself, its opposite, and the context turned by a right angle."""
    turned = np.stack([-context[:, 1], context[:, 0]], axis=1)
    return np.choose(task[:, None], [context, -context, turned])


def same_target(context: np.ndarray, task: np.ndarray) -> np.ndarray:
    return context


def worst_score(learner, config, targets, tasks: int, updates: int = UPDATES) -> float:
    """Trains, and returns the worst task's mean reward of the greedy policy; 1 is the best there is."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    agent = learner(config, 2, 2, tasks)
    replay = Replay(tasks, ENVS, ENVS * (WARMUP + updates), 126, 1, 2, 2)

    def contexts(count: int) -> np.ndarray:
        return rng.uniform(-0.8, 0.8, (count, 2)).astype(np.float32)

    def reward(context: np.ndarray, task: np.ndarray, action: np.ndarray) -> np.ndarray:
        return 1 - ((action - targets(context, task)) ** 2).sum(1)

    task = np.arange(ENVS) % tasks
    context = contexts(ENVS)
    for step in range(WARMUP + updates):
        warm = step >= WARMUP
        action = agent.policy.act(context, task, greedy=False) if warm else agent.policy.uniform(rng, ENVS)
        following = contexts(ENVS)
        replay.add(context, action, reward(context, task, action), following, task, np.ones(ENVS, np.int64))
        context = following
        if warm:
            agent.update(replay.sample(), step % agent.turns)
    scores = []
    for each in range(tasks):
        context, task = contexts(300), np.full(300, each)
        scores.append(reward(context, task, agent.policy.act(context, task, greedy=True)).mean())
    return float(min(scores))


@pytest.mark.slow
def test_identity_is_learnt():
    assert worst_score(SAC, replace(CONFIG, gamma=0.99), same_target, tasks=1) >= 0.95


CATEGORICAL = {
    "value_bins": 51,
    "value_smoothing": 0.75,
    "critic_reduction": "mean",
    "critic_network": "residual",
    "layer_norm": True,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"heads": "multi-head", "one_hot": False},
        pytest.param({"heads": "multi-head"}, marks=pytest.mark.exhaustive),
        pytest.param(CATEGORICAL, marks=pytest.mark.slow),
    ],
    ids=["one-hot", "multi-head", "multi-head and one-hot", "a distribution of the value"],
)
def test_tasks_are_told_apart_by_their_id(changes):
    assert worst_score(SAC, replace(CONFIG, **changes), turned_targets, tasks=3) >= 0.90


@pytest.mark.slow
def test_without_the_id_they_cannot_be_told_apart():
    assert worst_score(SAC, replace(CONFIG, one_hot=False), turned_targets, tasks=3) <= 0.60


@pytest.mark.slow
def test_td3_tells_tasks_apart_by_their_id():
    config = replace(test_td3.CONFIG, **QUICK)
    assert worst_score(TD3, config, turned_targets, tasks=3, updates=300) >= 0.90
