from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer import off_policy_checks as checks
from tests.trainer.sacs import OBSERVATION, same
from tests.trainer.textbooks import TextbookDQN
from trainer import recipe as recipes
from trainer.algorithms.dqn_update import DQN, DQNConfig
from trainer.nn.epsilon_greedy import QNetwork
from trainer.recipe import RecipeError
from trainer.replay import Batch, NStepReplay

CHOICES = 4
CONFIG = DQNConfig(
    hidden=(16, 24),
    double=False,
    dueling=False,
    n_step=1,
    learning_rate=2e-3,
    adam_eps=1e-5,
    max_grad_norm=0.0,
    gamma=0.9,
    tau=1.0,
    target_interval=3,
    epsilon_start=1.0,
    epsilon_end=0.1,
    exploration_share=0.5,
    reward_scale=1.0,
)
VARIED = {"double": True, "dueling": True, "max_grad_norm": 0.05, "tau": 0.1, "target_interval": 1}


def maker(config: DQNConfig = CONFIG, **how):
    def make(**more) -> DQN:
        torch.manual_seed(0)
        return DQN(config, OBSERVATION, CHOICES, **how, **more)

    return make


def draw(rows: int) -> Batch:
    """Errors on both sides of where the loss turns linear."""
    return Batch(
        torch.randn(rows, OBSERVATION),
        torch.randint(CHOICES, (rows, 1)).float(),
        3 * torch.randn(rows),
        torch.randn(rows, OBSERVATION),
        torch.zeros(rows, dtype=torch.int64),
        0.9 * (torch.arange(rows) % 5 > 0).float(),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"double": True},
        {"dueling": True},
        {"dueling": True, "hidden": (12,)},
        {"max_grad_norm": 0.05},
        {"tau": 0.05, "target_interval": 1},
        {"tau": 0.5, "target_interval": 2, "reward_scale": 0.1, "gamma": 0.99},
        VARIED,
    ],
    ids=str,
)
def test_updates_equal_a_plain_implementation(changes):
    config = replace(CONFIG, **changes)
    agent = maker(config)()
    reference = TextbookDQN(agent, config)
    batches = checks.drawn(draw, 8, rows=20)
    checks.teach(agent, batches)
    for number, batch in enumerate(batches):
        reference.update(batch, number)
    seen = batches[0].observation
    for ours, theirs in ((agent.policy.actor, reference.network), (agent.targets, reference.target)):
        torch.testing.assert_close(ours(seen).double(), theirs(seen.double()), rtol=1e-4, atol=1e-5)


def test_a_double_network_asks_its_target_what_its_own_choice_is_worth():
    plain, double = maker()(), maker(replace(CONFIG, double=True))()
    for agent in (plain, double):
        agent.targets.body.layers[-1].bias.data.copy_(torch.tensor([3.0, 0.0, 0.0, 1.0]))
        agent.policy.actor.body.layers[-1].bias.data.copy_(torch.tensor([0.0, 0.0, 0.0, 3.0]))
        for network in (agent.targets, agent.policy.actor):
            network.body.layers[-1].weight.data.zero_()
    batch = draw(5)
    expected = batch.reward + 0.9 * batch.goes_on * torch.tensor([[3.0], [1.0]])
    torch.testing.assert_close(torch.stack([plain._target(batch), double._target(batch)]), expected)


@pytest.mark.parametrize("dueling", [False, True])
def test_written_out_gradients_are_autograds(dueling):
    torch.manual_seed(0)
    network = QNetwork(3, (6, 5), 4, dueling=dueling)
    rows, slope = torch.randn(9, 3), torch.randn(9, 4)
    given, values = network.trace(rows)
    wanted = torch.autograd.grad((values * slope).sum(), list(network.parameters()))
    found = network.slopes(given, slope)
    if dueling:  # autograd knows nothing of what is held at zero
        wanted = [*wanted[:-2], wanted[-2] * network._within, wanted[-1]]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_target_is_copied_after_each_interval_of_updates_that_were_not_skipped():
    agent = maker()()
    (batch,) = checks.drawn(draw, 1)
    poisoned = batch._replace(reward=batch.reward * torch.nan)
    start, moved = [tensor.clone() for tensor in agent.targets.parameters()], []
    for each in (batch, poisoned, batch, poisoned, batch, batch, batch):
        agent.update(each)
        moved.append(not all(same(list(agent.targets.parameters()), start)))
        if len(moved) == 5:
            copied = [tensor.clone() for tensor in agent.policy.actor.parameters()]
    assert moved == [False, False, False, False, True, True, True]
    torch.testing.assert_close(list(agent.targets.parameters()), copied)
    agent.update(batch)
    torch.testing.assert_close(
        list(agent.targets.parameters()), list(agent.policy.actor.parameters()), rtol=1e-6, atol=1e-7
    )


def test_epsilon_falls_linearly_and_stays():
    agent = maker()()
    found = []
    for left in (1.0, 0.75, 0.5, 0.2, 0.0):
        agent.schedule(left)
        found.append(float(agent.policy.epsilon))
    assert found == pytest.approx([1.0, 0.55, 0.1, 0.1, 0.1])
    assert float(agent.state_dict()["policy"]["epsilon"]) == pytest.approx(0.1)


def test_the_policy_takes_any_choice_as_often_as_epsilon_says():
    agent = maker()()
    policy = agent.policy
    seen, task = torch.randn(1, OBSERVATION).expand(20_000, -1), torch.zeros(20_000, dtype=torch.int64)
    greedy = int(policy.mode(seen[:1], task[:1]))
    for left, epsilon in ((1.0, 1.0), (0.75, 0.55), (0.0, 0.1)):
        agent.schedule(left)
        noise = policy.draw_noise(20_000)
        assert noise.shape == (20_000, policy.noise_dim)
        chosen = policy.sample(seen, task, noise)
        assert chosen.shape == (20_000, 1)
        shares = torch.bincount(chosen[:, 0].long(), minlength=CHOICES) / 20_000
        expected = torch.full((CHOICES,), epsilon / CHOICES)
        expected[greedy] += 1 - epsilon
        torch.testing.assert_close(shares, expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("choices", [2, 3, 5, 6, 7, 18, 100])
def test_the_greatest_noise_stays_within_the_choices(choices):
    agent = DQN(CONFIG, OBSERVATION, choices)
    noise = torch.tensor([[0.0, 1.0 - 2.0**-24]])
    chosen = agent.policy.sample(torch.zeros(1, OBSERVATION), torch.zeros(1, dtype=torch.int64), noise)
    assert float(chosen) == choices - 1


def test_several_tasks_are_refused():
    with pytest.raises(ValueError, match="one task"):
        DQN(CONFIG, OBSERVATION, CHOICES, num_tasks=2)


CELLS, GAMMA = 6, 0.8


def walk(cell: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A corridor: 1 goes on and costs 0.1, 0 ends; the last cell pays 2 and ends."""
    on = action == 1
    following = np.where(on, cell + 1, cell)
    last = on & (following == CELLS)
    reward = np.where(on, np.where(last, 2.0, -0.1), 0.0)
    return np.where(last, cell, following), reward.astype(np.float32), ~on | last


def shown(cell: np.ndarray) -> np.ndarray:
    return np.eye(CELLS, dtype=np.float32)[cell]


def values_of_corridor() -> np.ndarray:
    """The optimal values, by iteration backwards: (cells, choices)."""
    values, best = np.zeros((CELLS, 2)), 0.0
    for cell in range(CELLS - 1, -1, -1):
        go = 2.0 if cell == CELLS - 1 else -0.1 + GAMMA * best
        values[cell] = 0.0, go
        best = values[cell].max()
    return values


@pytest.mark.slow
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_corridor_is_learnt_by_walking_it(n_step):
    config = replace(
        CONFIG,
        hidden=(32, 32),
        gamma=GAMMA,
        learning_rate=3e-3,
        target_interval=20,
        n_step=n_step,
        double=True,
    )
    torch.manual_seed(0)
    envs, steps = 8, 500
    agent = DQN(config, CELLS, 2)
    replay = NStepReplay(1500, 64, CELLS, 1, steps=n_step, gamma=GAMMA, num_envs=envs)
    cell, task = np.zeros(envs, np.int64), np.zeros(envs, np.int64)
    for step in range(steps):
        agent.schedule(1 - step / steps)
        action = agent.policy.act(shown(cell), task, greedy=False)
        following, reward, terminated = walk(cell, action[:, 0])
        replay.add(shown(cell), action, reward, shown(following), terminated)
        cell = np.where(terminated, 0, following)
        if step > 20:
            agent.update(replay.sample())
    greedy = agent.policy.act(np.eye(CELLS, dtype=np.float32), np.zeros(CELLS, np.int64), greedy=True)
    assert greedy[:, 0].tolist() == values_of_corridor().argmax(1).tolist()


def test_an_epsilon_that_would_rise_is_refused():
    with pytest.raises(RecipeError, match="is less than epsilon_end"):
        recipes.load("dqn").override({"epsilon_start": "0.01"}, {"epsilon_start"})
