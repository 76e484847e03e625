"""What is forecast is what PyTorch allocates."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.trainer import runs
from tests.trainer.allocated import CPU, batch_for, made, off_policy_learner, peak_bytes, stored_bytes
from trainer import recipe as recipes
from trainer.algorithms import sac
from trainer.algorithms.acting import Acting
from trainer.algorithms.kernels.plain import plain
from trainer.algorithms.sac_explicit import constants
from trainer.envs.metaworld import MetaworldFactory
from trainer.loops.rollout_learner import RolloutLearner
from trainer.nn import mlp
from trainer.ranks.parallel import Ranks
from trainer.recipe import memory
from trainer.recipe.environments import METAWORLD
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces
from trainer.replay import Replay
from trainer.replay.draw import DeviceDraw
from trainer.replay.lanes import Lanes
from trainer.settings import read_settings

SAC_RECIPES = [name for name in recipes.names() if recipes.load(name).algorithm == "sac"]
MULTI_HEAD = {"heads": "multi-head", "actor_hidden": "16,24", "critic_hidden": "32"}
CARTPOLE, LARGE = Spaces(4, 1, (2,)), Spaces(100, 1, (18,))
ONE_LAYER = {"dueling": "true", "hidden": "32"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given", "changes"),
    [
        *((name, None, {}) for name in SAC_RECIPES if name != "brc-mt10"),
        ("brc-mt10", None, {"critic_hidden": "512,512,512"}),  # whose weights take long to draw
        *(("td3", None, {}), ("td3-mt10", None, {}), ("td3-mt10", None, MULTI_HEAD)),
        *(("dqn", given, how) for given in (CARTPOLE, LARGE) for how in ({}, {"dueling": "true"}, ONE_LAYER)),
    ],
    ids=str,
)
def test_networks_targets_and_optimisers_of_off_policy_learners_to_the_byte(
    name: str, given: Spaces | None, changes: dict[str, str]
) -> None:
    agent, sizes = off_policy_learner(name, given=given, **changes)
    networks = [*agent._networks.values()]
    carrying = [*networks, agent._first_critic] if name.startswith("td3") else networks
    constants = [buffer for network in carrying for buffer in network.buffers()]
    constants += [getattr(agent, own) for own in ("_one_hot", "log_alpha", "_numbers") if hasattr(agent, own)]
    parameters = [each for network in networks for each in network.parameters()]
    learnt = [each for each in parameters if each.requires_grad]
    parts = {part.name: part.bytes for part in memory.learner_parts(sizes)}
    assert parts["networks"] == stored_bytes([*learnt, *constants])
    assert sizes.count.actor == sum(each.numel() for each in agent.policy.parameters())
    targets = stored_bytes([each for each in parameters if not each.requires_grad])
    assert parts[sizes.recipe.entry.targets[0]] == sizes.count.targets * 4 == targets
    optimizers = agent.optimizers.values()
    assert parts["optimiser"] == sum(tensor.nbytes for one in optimizers for tensor in one.tensors())
    assert parts["gradients"] == sum(each.nbytes for one in optimizers for each in one.parameters)


@pytest.mark.parametrize("num_envs", [None, 7, 10, 32])
@pytest.mark.parametrize("name", ["guide-mt10-debug", "local-demo"])
def test_the_replay_to_the_byte(name: str, num_envs: int | None) -> None:
    sizes = Sizes(recipes.load(name), num_envs)
    values, layout = sizes.recipe.values, sizes.layout
    replay = Replay(
        sizes.tasks,
        sizes.environments,
        values["replay_capacity"],
        values["batch_size"],
        values["episode_steps"],
        39,
        4,
    )
    rows, *rest = memory.replay_parts(sizes)
    assert rows.bytes == replay.nbytes == layout.nbytes
    draw = DeviceDraw(layout, Lanes(layout), CPU)
    tables = [draw._rota, draw._rotation, draw._lanes, draw._offset, draw._draw]
    assert [part.bytes for part in rest] == [sum(tensor.nbytes for tensor in tables)]


def test_small_policies_act_on_the_host_and_take_nothing_of_a_gpu() -> None:
    sizes = Sizes(recipes.load("guide-mt10"))
    assert sac.ENTRY.acting_bytes(sizes.share) == 0
    assert "acting" not in {part.name for part in memory.learner_parts(sizes)}
    one = memory.library_parts(sizes)[1]
    two = memory.library_parts(Sizes(recipes.load("mclean2025-mt10")))[1]
    assert (one.bytes, two.bytes) == (2 * 32 * 2**20, 3 * 32 * 2**20)


@pytest.mark.parametrize(
    ("name", "given", "changes"),
    [
        ("throughput-mt10", None, {}),
        ("mclean2025-mt10", None, {}),
        pytest.param("dqn", LARGE, {"hidden": "2048,2048"}, marks=pytest.mark.slow),
        pytest.param("dqn", LARGE, {"hidden": "2048,2048", "dueling": "true"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_what_acts_beside_the_updates_to_the_byte(
    name: str, given: Spaces | None, changes: dict[str, str]
) -> None:
    agent, sizes = off_policy_learner(name, given=given, **changes)
    spaces, envs = sizes.spaces, sizes.environments
    acting = Acting(agent.policy, envs, spaces.observation, lag=1)
    actor = acting._placement._actor
    copies = [*actor.parameters(), *actor.buffers(), *acting._placement.newest]
    inputs = envs * (spaces.observation + agent.policy.noise_dim + 1 + spaces.action) * 4
    assert sizes.recipe.entry.acting_bytes(sizes.share) == stored_bytes(copies) + inputs


WIDE_ACTOR = {"actor_hidden": "512,512", "critic_hidden": "256,256", "batch_size": "640"}
TD3_LAYERS = {"actor_hidden": "512,512", "critic_hidden": "64", "layer_norm": "true"}
DQN_STREAMS = {"batch_size": "1024", "dueling": "true", "double": "true"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "micro_batches", "given", "changes"),
    [
        ("local-demo", "fp32", 1, None, {}),
        ("local-demo", "bf16", 1, None, {}),
        pytest.param("guide-mt10", "fp32", 1, None, {}, marks=pytest.mark.exhaustive),
        ("guide-mt10", "bf16", 1, None, {}),
        ("guide-mt10", "fp32", 4, None, {}),
        ("mclean2025-mt10", "fp32", 1, None, WIDE_ACTOR),
        ("strong-mt10", "fp32", 1, None, {"critic_hidden": "512,512,512", "batch_size": "640"}),
        pytest.param("strong-mt10", "fp32", 1, None, {}, marks=pytest.mark.exhaustive),
        ("td3", "fp32", 1, None, {}),
        ("td3", "bf16", 1, None, {}),
        ("td3", "fp32", 4, None, {}),
        ("td3", "fp32", 1, None, TD3_LAYERS),
        ("td3-mt10", "fp32", 1, None, {}),
        ("td3-mt10", "fp32", 1, None, {"heads": "multi-head"}),
        ("dqn", "fp32", 1, CARTPOLE, {}),
        ("dqn", "fp32", 4, CARTPOLE, {}),
        ("dqn", "fp32", 1, LARGE, DQN_STREAMS),
        ("dqn", "bf16", 1, LARGE, DQN_STREAMS),
        ("dqn", "fp32", 1, LARGE, {"hidden": "512,512,512"}),
    ],
    ids=str,
)
def test_the_peak_of_an_update_is_forecast_within_a_tenth_of_sac_and_an_eighth_of_others(
    name: str,
    precision: str,
    micro_batches: int,
    given: Spaces | None,
    changes: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", False)  # the products as a GPU computes them
    monkeypatch.setattr(mlp, "_WORTH_SKIPPING", 2**60)  # of all rows
    agent, sizes = off_policy_learner(name, precision, micro_batches, given, **changes)
    batch, entry = batch_for(sizes), sizes.recipe.entry
    peak = max(peak_bytes(partial(agent.update, batch, turn), tmp_path) for turn in range(agent.turns))
    within = 0.1 if entry.name == "sac" else 0.125
    assert entry.workspace_bytes(sizes.share, micro_batches) == pytest.approx(peak, rel=within)


@pytest.mark.parametrize("name", ["guide-mt10", "mclean2025-mt10"])
def test_explicit_gradients_need_no_more_than_the_forecast(name: str, tmp_path: Path) -> None:
    agent, sizes = off_policy_learner(name)
    agent.operations = plain(constants(agent.config, agent.policy.action_dim))
    peak = peak_bytes(partial(agent.update, batch_for(sizes)), tmp_path)
    assert peak <= sizes.recipe.entry.workspace_bytes(sizes.share)


def rollout_learner(folder: Path, **values: str) -> tuple[RolloutLearner, Sizes]:
    changes = runs.changed(values)
    settings = read_settings(["--recipe", "mtppo-mt10", "--run-dir", str(folder), *changes], {})
    learner = RolloutLearner(
        settings,
        MetaworldFactory(settings.tasks, episode_steps=settings.recipe.values["episode_steps"]),
        CPU,
        Ranks(),
    )
    return learner, Sizes(settings.recipe, settings.num_envs, on_gpu=False)


def test_what_learns_from_rollouts_to_the_byte(tmp_path: Path) -> None:
    learner, sizes = rollout_learner(tmp_path, rollout_size="5000", batch_size="500")
    parts = {part.name: part.bytes for part in memory.learner_parts(sizes)}
    agent = learner.agent
    assert parts["networks"] == parts["gradients"] == agent._flat.nbytes
    assert parts["optimiser"] == stored_bytes(agent._optimizer.tensors())
    assert parts["rollout"] == stored_bytes(list(learner.rollout._device.values()))
    rows = agent.estimate(learner.rollout)
    assert parts["rows"] == rows.nbytes + learner.chosen.nbytes
    assert memory.replay_parts(sizes) == ()
    assert [part.name for part in memory.host_parts(sizes, 16, None)][-1] == "evaluation"
    pinned = memory.host_parts(replace(sizes, on_gpu=True), 16, None)[2]
    assert (pinned.name, pinned.bytes) == ("rollout", parts["rollout"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "rollout", "batch"),
    [
        pytest.param("400,400,400", "20000", "625", marks=pytest.mark.exhaustive),
        ("400,400,400", "5000", "5000"),
        ("64,64", "20000", "625"),
    ],
)
def test_the_peak_of_learning_from_a_rollout_within_a_tenth(
    hidden: str, rollout: str, batch: str, tmp_path: Path
) -> None:
    learner, sizes = rollout_learner(tmp_path, hidden=hidden, rollout_size=rollout, batch_size=batch)
    learner.rows = learner.agent.estimate(learner.rollout)
    looking = peak_bytes(lambda: learner.agent.estimate(learner.rollout), tmp_path)
    peak = max(looking, peak_bytes(learner._descend, tmp_path))
    (work,) = (part.bytes for part in memory.learner_parts(sizes) if part.name == "update")
    assert work == pytest.approx(peak, rel=0.1)


def test_the_host_s_processes_are_the_ones_that_will_run() -> None:
    sizes = Sizes(recipes.load("guide-mt10"), 32)
    learning, playing, evaluating = memory.host_parts(sizes, 16, None)
    assert "in 11 processes" in playing.note
    own = 11 * METAWORLD.worker_bytes + 32 * METAWORLD.environment_bytes
    assert playing.bytes == own + round(33 * 0.8) * METAWORLD.model_bytes, (
        "3 tasks a process, which share some"
    )
    assert "40 environments" in evaluating.note
    assert learning.bytes == memory.LEARNER_CUDA_BYTES
    assert not any(part.exact for part in (learning, playing, evaluating))
    alone = memory.host_parts(sizes, 1, None, episodes=1)
    assert "in the learner" in alone[1].note
    played = 10 * METAWORLD.environment_bytes + 8 * METAWORLD.model_bytes
    assert alone[2].bytes == memory.EVALUATOR_BYTES + played


META = torch.device("meta")
"""Where modules have shapes and no memory, so that the widest are built at once."""
TREE = Spaces(observation=7, action=2, choices=(3, 4))
"""Two choices at once: what only PPO and A2C learn."""


def built(sizes: Sizes) -> int:
    with META:
        agent = made(sizes, device=META)
    if sizes.recipe.entry.loop == "on-policy":
        return int(agent._flat.numel())
    return sum(tensor.numel() for one in agent.optimizers.values() for tensor in one.parameters)


@pytest.mark.parametrize("name", recipes.names())
def test_what_is_counted_is_what_is_built(name: str) -> None:
    recipe = recipes.load(name)
    sizes = Sizes(recipe, given=None if not Sizes(recipe).unknown else Spaces(11, 3))
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_choices_are_counted_each(name: str) -> None:
    sizes = Sizes(recipes.load(name), given=TREE)
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize(
    "changes", [{"dueling": "true"}, {"hidden": "64"}, {"dueling": "true", "hidden": "32,16,8"}]
)
def test_the_streams_of_a_dueling_network_are_counted(changes: dict[str, str]) -> None:
    sizes = Sizes(recipes.load("dqn").override(changes, changes))
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize(
    ("name", "width", "parameters"),
    [
        ("mclean2025-mt10", 1024, 2_232_400),
        ("mclean2025-mt10", 2048, 8_659_024),
        ("mclean2025-mt10", 4096, 34_095_184),
        ("mclean2025-mt50", 256, 257_424),
        ("mclean2025-mt50", 512, 776_592),
        ("mclean2025-mt50", 1024, 2_601_360),
        ("mclean2025-mt50", 4096, 35_570_064),
    ],
)
def test_actors_have_the_published_sizes(name: str, width: int, parameters: int) -> None:
    widths = f"{width},{width},{width}"
    loaded = recipes.load(name).override({"actor_hidden": widths}, {"actor_hidden"})
    assert Sizes(loaded).count.actor == parameters


def test_critics_have_the_published_size() -> None:
    assert round(Sizes(recipes.load("mclean2025-mt10")).count.critics, -3) == 4_329_000
