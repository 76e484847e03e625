"""Multi-task PPO: estimates and updates against plain loops and autograd, and whole runs on Meta-World."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from tests.trainer.runs import StopAt, newest, rows, run, settings_for, train
from tests.trainer.test_capture import CpuRecorder
from tests.trainer.textbooks import second_step
from tests.trainer.toys import WishFactory
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.multi_task_ppo_learner import MultiTaskPPO, fitted_returns
from trainer.algorithms.on_policy_config import MultiTaskPPOConfig, make_task_actor
from trainer.checkpoint.model import digest, load_model
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.self_check import environment_class
from trainer.loops.generators import Stream
from trainer.loops.rollout_learner import RolloutLearner
from trainer.ranks.parallel import Ranks
from trainer.recipe import load
from trainer.replay.rollout import Rollout, Transitions
from trainer.seeds.group import join_learners
from trainer.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("checked_tasks", "warm_processes")

EPISODE, EPISODES, ENVS, TASKS, OBSERVATION, ACTION = 5, 3, 4, 3, 6, 2
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checked_tasks() -> None:
    """What was compared with the official classes before processes fork is not compared by each of them."""
    for task in ("reach-v3", "drawer-close-v3"):
        environment_class(task)


def config(**changes: object) -> MultiTaskPPOConfig:
    values = dict(load("mtppo-mt10").values) | {"hidden": [16, 16], "episode_steps": EPISODE}
    return replace(MultiTaskPPOConfig.from_values(values), learning_rate=1e-2, **changes)


def make(seed: int = 0, **changes: object) -> MultiTaskPPO:
    torch.manual_seed(seed)
    own = config(**changes)
    agent = MultiTaskPPO(own, make_task_actor(own, OBSERVATION, ACTION, TASKS), ENVS, nullcontext)
    with torch.no_grad():  # a policy that says something
        agent.policy.actor.layers[-1].weight.mul_(100.0)
    return agent


def lived(agent: MultiTaskPPO) -> Rollout:
    """A rollout of random numbers in which the last environment goes from task to task."""
    rng = np.random.default_rng(0)
    rollout = Rollout(EPISODES * EPISODE, ENVS, agent.policy.inputs, ACTION, CPU)
    for step in range(EPISODES * EPISODE):
        task = np.array([0, 1, 2, step // EPISODE])
        seen, following = rng.normal(size=(2, ENVS, OBSERVATION)).astype(np.float32)
        action = rng.normal(size=(ENVS, ACTION)).astype(np.float32)
        reward = rng.uniform(0, 10, ENVS).astype(np.float32)
        over = np.full(ENVS, step % EPISODE == EPISODE - 1)
        shown = agent.policy.shown(seen, task), agent.policy.shown(following, task)
        rollout.add(shown[0], action, reward, shown[1], np.zeros(ENVS, np.bool_), over)
    rollout.hand_over()
    return rollout


def batch_of(agent: MultiTaskPPO, rollout: Rollout) -> Transitions:
    return agent.pack(agent.estimate(rollout)).batch()


def textbook(agent: MultiTaskPPO, batch: Transitions) -> tuple[torch.Tensor, torch.Tensor]:
    mean, log_std = agent.policy.actor(batch.features).chunk(2, -1)
    peer = Normal(mean, log_std.clamp(-20.0, 2.0).exp())
    return peer.log_prob(batch.action).sum(-1), peer.entropy().sum(-1)


@pytest.mark.slow
def test_estimates_end_with_the_episode_and_are_against_the_fit() -> None:
    agent = make()
    rollout = lived(agent)
    batch = batch_of(agent, rollout)
    reward = rollout.reward.view(EPISODES, EPISODE, ENVS)
    returns = torch.zeros_like(reward)
    for step in reversed(range(EPISODE)):
        behind = returns[:, step + 1] if step + 1 < EPISODE else 0.0
        returns[:, step] = reward[:, step] + 0.99 * behind
    shown = rollout.observation.view(EPISODES, EPISODE, ENVS, -1)
    value = torch.zeros_like(reward)
    for env in range(ENVS):  # the fit of a task is of its episodes alone, whoever played them
        for episode in range(EPISODES):
            task = shown[episode, 0, env, OBSERVATION:]
            own = [
                (e, v)
                for e in range(EPISODES)
                for v in range(ENVS)
                if torch.equal(shown[e, 0, v, OBSERVATION:], task)
            ]
            seen = torch.stack([shown[e, :, v, :OBSERVATION] for e, v in own])
            brought = torch.stack([returns[e, :, v] for e, v in own])
            fit = fitted_returns(seen, brought, torch.ones(len(own), 1), 1e-5)
            value[episode, :, env] = fit[own.index((episode, env))]
    advantage = torch.zeros_like(reward)
    for step in reversed(range(EPISODE)):
        last = step + 1 == EPISODE
        following, behind = (0.0, 0.0) if last else (value[:, step + 1], advantage[:, step + 1])
        surprise = reward[:, step] + 0.99 * following - value[:, step]
        advantage[:, step] = surprise + 0.99 * 0.97 * behind
    torch.testing.assert_close(batch.value, value.flatten(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(batch.advantage, advantage.flatten(), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(batch.log_density, textbook(agent, batch)[0].detach())
    torch.testing.assert_close(batch.features, rollout.observation.flatten(0, 1))


@pytest.mark.slow
def test_an_update_is_the_textbooks() -> None:
    agent = make()
    batch = batch_of(agent, lived(agent))
    agent.update(batch)  # so that the ratio is not 1 everywhere
    plain = copy.deepcopy(agent)
    order = list(plain.policy.actor.parameters())
    assert sum(each.numel() for each in order) == agent._flat.numel()
    state = copy.deepcopy(agent._optimizer.state_dict())["state"][0]

    scalars = agent.update(batch)

    log_density, entropy = textbook(plain, batch)
    ratio = (log_density - batch.log_density).exp()
    kept = ratio.clamp(0.8, 1.2)
    assert (ratio != kept).any()
    policy_loss = -torch.min(batch.advantage * ratio, batch.advantage * kept).mean()
    gradients = torch.autograd.grad(policy_loss - 5e-3 * entropy.mean(), order)
    gradient = torch.cat([each.flatten() for each in gradients])
    step = second_step(gradient, state, 1.0)
    expected = torch.cat([each.detach().flatten() for each in order]) - step
    torch.testing.assert_close(agent._flat, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(scalars["loss/policy"], policy_loss.detach())
    torch.testing.assert_close(scalars["entropy"], entropy.mean().detach())
    torch.testing.assert_close(scalars["grad_norm"], gradient.norm(), rtol=1e-4, atol=1e-5)


def test_what_is_not_finite_changes_nothing() -> None:
    agent = make()
    rollout = lived(agent)
    rollout.reward[2, 1] = float("inf")
    before = agent._flat.clone()
    agent.update(batch_of(agent, rollout))
    assert torch.equal(agent._flat, before)
    assert agent.skipped.tolist() == [1, 1]


def test_a_state_goes_on_to_the_bit_and_capturing_leaves_no_trace() -> None:
    agent, other = make(), make(seed=1)
    rollout = lived(agent)
    agent.update(batch_of(agent, rollout))
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    held = torch.zeros_like(agent.estimate(rollout))
    learn = CapturedUpdate(lambda: other.update(other.pack(held).batch()), other.tensors, CPU, CpuRecorder())
    for _ in range(3):
        agent.update(batch_of(agent, rollout))
        held.copy_(other.estimate(rollout))
        learn()
    assert all(map(torch.equal, agent.tensors(), other.tensors()))


def test_a_fresh_policy_is_the_authors() -> None:
    torch.manual_seed(0)
    own = MultiTaskPPOConfig.from_values(load("mtppo-mt10").values)
    actor = make_task_actor(own, 39, 4, 10)
    assert actor.critic is None
    assert sum(each.numel() for each in actor.parameters()) == 344_008
    for layer in actor.actor.layers[:-1]:
        bound = (6.0 / layer.in_features) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max() <= bound
        assert not layer.bias.any()
    for parameter in actor.actor.layers[-1].parameters():
        assert 0 < parameter.abs().max() <= 1e-3
    seen, task = np.random.default_rng(0).normal(size=(3, 39)).astype(np.float32), np.array([0, 9, 4])
    shown = actor.shown(seen, task)
    assert np.array_equal(shown[:, :39], seen)
    assert shown[:, 39:].argmax(1).tolist() == task.tolist()
    assert shown[:, 39:].sum() == 3
    outputs = actor.actor(torch.from_numpy(shown)).detach().numpy()
    assert np.array_equal(actor.act(seen, task, greedy=True), outputs[:, :4])
    torch.manual_seed(1)
    drawn = actor.act(seen, task, greedy=False)
    torch.manual_seed(1)
    noise = torch.randn(3, 4).numpy()
    np.testing.assert_allclose(drawn, outputs[:, :4] + np.exp(outputs[:, 4:]) * noise, rtol=1e-5)


def learnt(settings: TrainSettings) -> str:
    return digest(newest(settings)["model"]["learner"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainSettings:
    """A run of three environments on two tasks, one of which goes from task to task."""
    argv = ("--total-steps", "540", "--num-envs", "3", "--log-every", "180")
    settings = settings_for(tmp_path_factory.mktemp("whole"), "mtppo-mt10", *argv)
    assert train(settings).code == 0
    return settings


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(25,), (60,), (3, 47, 30)], ids=["within", "between", "thrice"])
def test_an_interrupted_run_goes_on_to_the_bit(
    tmp_path: Path, whole: TrainSettings, stops: tuple[int, ...]
) -> None:
    settings = settings_for(tmp_path, "mtppo-mt10", "--total-steps", "540", "--num-envs", "3")
    for attempt, stop in enumerate(stops):
        assert train(settings, resume=attempt > 0, stop=StopAt(stop), seed=attempt).code == 85
    assert train(settings, resume=True, seed=99).code == 0
    assert learnt(settings) == learnt(whole)


def test_rollouts_are_whole_episodes_of_all_tasks(whole: TrainSettings) -> None:
    progress = newest(whole)["state"]["progress"]
    assert progress["step"] == 540  # 160 transitions are 54 steps, which become 60: 3 episodes of each
    last = rows(whole.run_dir, "train")[-1]
    assert progress["updates"] == 3 * 2 * 4
    assert last["updates_skipped"] == 0
    names = {
        f"{kind}/{task}-v3" for kind in ("return", "train_success") for task in ("reach", "drawer-close")
    }
    seen = set().union(*(row.keys() for row in rows(whole.run_dir, "train")))
    assert seen >= names | {"return/mean", "loss/policy", "entropy", "kl", "explained_variance"}
    assert not any(key.startswith("length/") for key in seen)


@pytest.mark.slow
def test_workers_change_nothing_and_a_model_acts_as_it_learnt(tmp_path: Path, whole: TrainSettings) -> None:
    argv = ("--total-steps", "540", "--num-envs", "3", "--workers", "1")
    settings = settings_for(tmp_path, "mtppo-mt10", *argv, "--eval-every", "540", "--eval-episodes", "1")
    found = train(settings)
    assert learnt(settings) == learnt(whole)
    assert [row["step"] for row in rows(tmp_path, "eval")] == [540]
    assert all("success/reach-v3" in row for row in rows(tmp_path, "eval"))
    model = load_model(tmp_path)
    seen = np.random.default_rng(0).normal(size=(2, 39)).astype(np.float32)
    task = np.array([1, 0])
    expected = found.learner.agent.policy.act(seen, task, greedy=True)
    assert np.array_equal(model.policy.act(seen, task, greedy=True), expected)


@pytest.mark.slow
def test_each_task_learns_its_own(tmp_path: Path) -> None:
    learning = {"rollout_size": "320", "epochs": "8", "learning_rate": "3e-3", "gamma": "0.1"}
    settings = settings_for(tmp_path, "mtppo-mt10", "--total-steps", "16000", "--num-envs", "4", **learning)
    policy = run(settings, WishFactory()).learner.agent.policy
    found = policy.act(np.zeros((2, 1), np.float32), np.arange(2), greedy=True)
    np.testing.assert_allclose(found[:, 0], [-0.5, 0.75], atol=0.1)
    outputs = policy.actor(torch.from_numpy(policy.shown(np.zeros((2, 1), np.float32), np.arange(2))))
    assert (outputs[:, 1] < -0.5).all(), "and to be sure of it: the deviation was 1 at first"


def test_several_seeds_learn_one_after_the_other_and_say_why(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "mtppo-mt10")
    factory = MetaworldFactory(settings.tasks, episode_steps=settings.recipe.values["episode_steps"])
    learners = [RolloutLearner(settings, factory, CPU, Ranks()) for _ in range(2)]
    assert join_learners(learners, [Stream(CPU), Stream(CPU)]) is None
    said = {learner.note for learner in learners}
    assert said == {"runs of multi-task PPO learn one after the other, not at once"}
