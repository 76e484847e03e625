"""What is reckoned beforehand is what PyTorch allocates."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.trainer import runs
from tests.trainer.allocated import peak_bytes, stored_bytes
from trainer import recipe as recipes
from trainer.algorithms import sac
from trainer.algorithms.acting import Acting
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.envs.metaworld import MetaworldFactory
from trainer.loops.rollout_learner import RolloutLearner
from trainer.machine.device import autocast
from trainer.nn import mlp
from trainer.ranks.parallel import Ranks
from trainer.recipe import memory
from trainer.recipe.environments import METAWORLD
from trainer.recipe.sizes import Sizes
from trainer.replay import Batch, Replay
from trainer.replay.draw import DeviceDraw
from trainer.replay.lanes import Lanes
from trainer.settings import read_settings

SAC_RECIPES = [name for name in recipes.names() if recipes.load(name).algorithm == "sac"]
SAC_RECIPES.remove("sac")
CPU = torch.device("cpu")


def learner(name: str, precision: str = "fp32", micro_batches: int = 1, **changes: str) -> tuple[SAC, Sizes]:
    sizes = Sizes(recipes.load(name).override(changes, changes), precision=precision)
    config = SACConfig.from_values(sizes.recipe.values)
    context = partial(autocast, CPU, precision)
    return SAC(config, 39, 4, sizes.tasks, CPU, context, micro_batches=micro_batches), sizes


def batch_of(sizes: Sizes) -> Batch:
    size = sizes.recipe.values["batch_size"]
    seen, following, action = torch.randn(size, 39), torch.randn(size, 39), torch.rand(size, 4)
    return Batch(seen, action, torch.randn(size), following, torch.arange(size) % sizes.tasks)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAC_RECIPES)
def test_networks_targets_and_optimiser_to_the_byte(name: str) -> None:
    narrow = {"critic_hidden": "512,512,512"} if name == "brc-mt10" else {}  # its weights take long to draw
    agent, sizes = learner(name, **narrow)
    count = sizes.count
    modules = [agent.policy, agent.critics]
    carried = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    constants = [*agent.targets.buffers(), agent._one_hot, agent.log_alpha]
    assert sac.ENTRY.network_bytes(sizes.share) == stored_bytes([*carried, *constants])
    assert count.targets * 4 == stored_bytes([*agent.targets.parameters()])
    state = [tensor for one in agent.optimizers.values() for tensor in one.tensors()]
    assert sac.ENTRY.optimizer_bytes(sizes.share) == sum(tensor.nbytes for tensor in state)
    parts = {part.name: part for part in memory.learner_parts(sizes)}
    assert parts["gradients"].bytes == count.trained * 4
    assert not parts["update"].exact


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


@pytest.mark.parametrize("name", ["throughput-mt10", "mclean2025-mt10"])
def test_what_acts_beside_the_updates_to_the_byte(name: str) -> None:
    agent, sizes = learner(name)
    acting = Acting(agent.policy, sizes.environments, 39, lag=1)
    copies = [*acting._actor.parameters(), *acting._actor.buffers(), *acting._newest]
    inputs = sizes.environments * (39 + 4 + 1 + 4) * 4
    assert sac.ENTRY.acting_bytes(sizes.share) == stored_bytes(copies) + inputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "micro_batches", "changes"),
    [
        ("local-demo", "fp32", 1, {}),
        ("local-demo", "bf16", 1, {}),
        pytest.param("guide-mt10", "fp32", 1, {}, marks=pytest.mark.exhaustive),
        ("guide-mt10", "bf16", 1, {}),
        ("guide-mt10", "fp32", 4, {}),
        ("strong-mt10", "fp32", 1, {"critic_hidden": "512,512,512", "batch_size": "640"}),
        pytest.param("strong-mt10", "fp32", 1, {}, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_the_peak_of_an_update_within_a_tenth(
    name: str,
    precision: str,
    micro_batches: int,
    changes: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mlp, "PREFER_ONEDNN", False)  # the products as a GPU computes them
    agent, sizes = learner(name, precision, micro_batches, **changes)
    batch = batch_of(sizes)
    peak = peak_bytes(lambda: agent.update(batch), tmp_path)
    assert sac.ENTRY.workspace_bytes(sizes.share, micro_batches) == pytest.approx(peak, rel=0.1)


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
