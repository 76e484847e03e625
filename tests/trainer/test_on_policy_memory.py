"""What is forecast of rollouts is what PyTorch allocates; and the sizes it is forecast by."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.trainer.allocated import CPU, made, peak_bytes, stored_bytes
from trainer import recipe as recipes
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.recipe import memory, on_policy
from trainer.recipe.environments import GYMNASIUM, METAWORLD
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces, known_spaces
from trainer.replay import TransitionReplay
from trainer.replay.rollout import Rollout

ON_POLICY = [
    name
    for name in recipes.names()
    if (recipe := recipes.load(name)).entry.loop == "on-policy" and recipe.environment is GYMNASIUM
]
LARGE = ("guide-ppo-beast", "rtx4070-ppo")
"""Nothing but wider layers than others: drawing them takes seconds."""
KIB = 2**10


def sizes_of(name: str, precision: str = "fp32", environment: str = "", num_envs: int | None = None) -> Sizes:
    recipe = recipes.load(name)
    if environment:
        recipe = recipe.override({"environment": environment}, {"environment"})
    return Sizes(recipe, num_envs, precision, on_gpu=False)


def rollout_of(sizes: Sizes) -> Rollout:
    spaces = sizes.spaces
    return Rollout(sizes.share.cuts.steps, sizes.environments, spaces.observation, spaces.action, CPU)


@pytest.mark.parametrize("name", [name for name in ON_POLICY if name not in LARGE])
def test_what_stays_to_the_byte(name: str) -> None:
    recipe = recipes.load(name)
    small = {"rollout_size": "512"} | ({"batch_size": "64"} if "batch_size" in recipe.values else {})
    sizes = Sizes(recipe.override(small, small), on_gpu=False)
    agent = made(sizes)
    policy = agent.policy
    carried = [*policy.parameters(), *policy.buffers(), *agent._reward_moments.buffers()]
    flags = [agent.learning_rate, agent._entropy_weight, agent.stopped, agent.skipped, agent.sums]
    assert on_policy.network_bytes(sizes.share) == stored_bytes([*carried, *flags])
    assert on_policy.optimizer_bytes(sizes.share) == stored_bytes(agent._optimizer.tensors())
    rollout = rollout_of(sizes)
    assert on_policy.rollout_bytes(sizes.share) == stored_bytes([*rollout._device.values()])
    rows = agent.estimate(rollout)
    assert on_policy.rows_bytes(sizes.share) == rows.nbytes
    batch = agent.pack(rows).batch(torch.arange(sizes.share.cuts.batch_size))
    agent.update(batch)
    gradients = [agent._flat.grad] if agent._flat.grad is not None else []
    assert on_policy.gradient_bytes(sizes.share) == stored_bytes(gradients)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "environment"),
    [
        ("ppo", "fp32", "CartPole-v1"),
        ("a2c", "fp32", "CartPole-v1"),
        ("ppo-mujoco", "fp32", "Humanoid-v5"),
        ("guide-ppo-fast", "fp32", ""),
        ("guide-ppo-heavy", "bf16", ""),
        ("rtx4060-ppo", "bf16", ""),
        ("rtx4060-a2c", "bf16", ""),
    ],
)
def test_the_peaks_of_learning_within_a_tenth(
    name: str, precision: str, environment: str, tmp_path: Path
) -> None:
    sizes = sizes_of(name, precision, environment)
    agent, rollout = made(sizes), rollout_of(sizes)
    for part in ("observation", "next_observation", "reward"):
        rollout._host[part].normal_()
    rows = agent.estimate(rollout)

    def estimate() -> None:
        nonlocal rows
        rows = agent.estimate(rollout)  # the old ones are there until the new ones are

    seen = peak_bytes(estimate, tmp_path)
    assert on_policy.estimate_bytes(sizes.share) == pytest.approx(seen, rel=0.1, abs=16 * KIB)
    chosen = (
        torch.randperm(sizes.share.cuts.rollout)[: sizes.share.cuts.batch_size]
        if sizes.share.cuts.count > 1
        else None
    )
    seen = peak_bytes(lambda: agent.update(agent.pack(rows).batch(chosen)), tmp_path)
    assert on_policy.update_bytes(sizes.share) == pytest.approx(seen, rel=0.1, abs=16 * KIB)


def test_a_replay_of_transitions_to_the_byte() -> None:
    changes = {"environment": "HalfCheetah-v5", "replay_capacity": "5000"}
    replay = TransitionReplay(5000, 256, 17, 6)
    rows, index = memory.replay_parts(Sizes(recipes.load("sac").override(changes, changes)))
    assert rows.bytes == replay.nbytes
    assert index.bytes == sum(one.nbytes for one in (replay._size, replay._draw, replay._task))


@pytest.mark.parametrize("name", ["guide-mt10", "guide-ppo-heavy", "sac"])
def test_ranks_have_a_share_each_of_all_but_the_networks(name: str) -> None:
    alone, shared = Sizes(recipes.load(name), 32), Sizes(recipes.load(name), 32, ranks=2)
    one, own = ({part.name: part.bytes for part in memory.learner_parts(each)} for each in (alone, shared))
    assert own["optimiser"] == one["optimiser"]
    assert own["gradients"] == one["gradients"]
    assert one["update"] / 2 <= own["update"] < one["update"]
    assert own["messages"] == one["gradients"]
    assert "NCCL" in own
    assert "NCCL" not in one
    if shared.recipe.entry.loop == "on-policy":
        assert own["rollout"] == one["rollout"] // 2
    else:
        kept = [memory.replay_parts(each)[0].bytes for each in (alone, shared)]
        assert kept[1] == pytest.approx(kept[0] / 2, rel=0.1)
    hosts = [memory.host_parts(each, 16, None)[0].bytes for each in (alone, shared)]
    assert hosts[1] == 2 * hosts[0]


def test_a_learner_with_rollouts_is_one_of_those_that_step() -> None:
    for name, workers, said in (
        ("ppo", None, "8 environments in 7 processes and the learner"),
        ("ppo", 8, "8 environments in 8 processes"),
        ("ppo", 0, "8 environments in the learner"),
        ("sac", None, "1 environment in 1 process"),
    ):
        assert memory.host_parts(Sizes(recipes.load(name)), 16, workers)[1].note == said


@pytest.mark.slow
def test_the_table_is_that_of_the_environments_themselves() -> None:
    checked = 0
    for name, spaces in known_spaces().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a newer version of it exists
            factory = GymnasiumFactory(name, actions="clipped", seed=0)
        found = factory.action_space
        choices = found.nvec if found.kind == "discrete" else ()
        assert Spaces(factory.observation_dim, factory.action_dim, choices) == spaces, name
        checked += 1
    assert checked > 30


def test_every_recipe_names_an_environment_whose_sizes_are_known() -> None:
    for name in recipes.names():
        recipe = recipes.load(name)
        assert recipe.environment is METAWORLD or recipe.values["environment"] in known_spaces(), name


def test_an_environment_that_only_its_module_knows_is_said_to_be_so() -> None:
    sizes = sizes_of("ppo", environment="mine:Maze-v0")
    assert "only mine:Maze-v0 knows" in sizes.unknown
    given = Sizes(sizes.recipe, given=Spaces(24, 2, (3, 3)))
    assert given.unknown == ""
    assert given.count.actor == (24 + 1) * 64 + 65 * 64 + 65 * 6, "no deviation a choice"
