"""Sizes reckoned from a recipe are those of the networks and replays that are made of it."""

from __future__ import annotations

import pytest

from trainer import recipe
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

SAC = [
    name
    for name in recipe.names()
    if recipe.load(name).algorithm == "sac" and "tasks" in recipe.load(name).values
]
"""Those on Meta-World."""


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
    loaded = recipe.load(name).override({"actor_hidden": widths}, {"actor_hidden"})
    assert Sizes(loaded).count.actor == parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", SAC)
def test_the_footprint_is_that_of_the_real_thing(name: str) -> None:
    from trainer.algorithms import sac_learner

    loaded = recipe.load(name)
    if name == "brc-mt10":  # whose weights take long to draw
        loaded = loaded.override({"critic_hidden": "512,512,512"}, {"critic_hidden"})
    tasks = len(recipe.task_names(loaded.values["tasks"]))
    learner = sac_learner.SAC(sac_learner.SACConfig.from_values(loaded.values), 39, 4, tasks)
    count = Sizes(loaded).count
    assert sum(p.numel() for p in learner.policy.parameters()) == count.actor
    assert sum(p.numel() for p in learner.critics.parameters()) == count.critics == count.targets
    assert learner.log_alpha.numel() == count.alphas == tasks
    assert count.trained == count.actor + count.critics + count.alphas


@pytest.mark.slow
@pytest.mark.parametrize("name", SAC)
@pytest.mark.parametrize("num_envs", [None, 1, 7, 16, 32, 48, 120])
def test_the_replays_footprint_is_that_of_the_real_thing(name: str, num_envs: int | None) -> None:
    from trainer.replay import Replay

    changes = {"replay_capacity": "100_000", "batch_size": "1_001"}  # small enough for any machine
    for loaded in (recipe.load(name), recipe.load(name).override(changes, changes)):
        values = loaded.values
        if values["replay_capacity"] > 1_000_000:
            continue
        tasks = len(recipe.task_names(values["tasks"]))
        sizes = values["replay_capacity"], values["batch_size"], values["episode_steps"], 39, 4
        replay = Replay(tasks, num_envs or tasks, *sizes)
        assert replay.nbytes == Sizes(loaded, num_envs).layout.nbytes


def test_the_footprint_on_another_environment_is_that_of_the_real_thing() -> None:
    from trainer.algorithms import sac_learner
    from trainer.replay import TransitionReplay

    loaded = recipe.load("sac").override({"replay_capacity": "5000"}, {"replay_capacity"})
    learner = sac_learner.SAC(sac_learner.SACConfig.from_values(loaded.values), 3, 2, 1)
    count = Sizes(loaded, given=Spaces(3, 2)).count
    assert sum(p.numel() for p in learner.policy.parameters()) == count.actor
    assert sum(p.numel() for p in learner.critics.parameters()) == count.critics == count.targets
    assert learner.log_alpha.numel() == count.alphas == 1
    replay = TransitionReplay(5000, loaded.values["batch_size"], 3, 2)
    assert replay.nbytes == Sizes(loaded, 8, given=Spaces(3, 2)).layout.nbytes


def test_on_policy_footprints() -> None:
    fast = recipe.load("guide-ppo-fast")
    assert Sizes(fast).layout is None
    # Pendulum: 3 observations, 1 action with its log deviation.
    assert Sizes(fast, given=Spaces(3, 1)).count.actor == (3 + 1) * 512 + 513 * 512 + 513 + 1
