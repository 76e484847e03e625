"""Which goals a run plays, and that they stay what they are: resumed, evaluated and played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.runs import events, newest, settings_for
from trainer import recipe as recipes
from trainer.checkpoint.model import load_model
from trainer.envs.choice import factory_for
from trainer.envs.metaworld import MetaworldFactory
from trainer.evaluate import main as evaluate
from trainer.evaluation import evaluator
from trainer.loops.training import train
from trainer.recipe.environments import GYMNASIUM
from trainer.settings import TrainSettings, read_each

OF_THE_PAPER = ("mclean2025-mt10", "mclean2025-mt50", "mtppo-mt10", "mtppo-mt50")
CHANGES = {
    "tasks": "reach",
    "episode_steps": "10",
    "warmup_steps": "10",
    "batch_size": "4",
    "replay_capacity": "100",
    "env_steps_per_update": "20",
    "evaluation_episodes": "1",
    "evaluation_goals": "1",
    "goals": "seed",
}


def goal_settings(run_dir: Path, total: int, *more: str) -> TrainSettings:
    argv = ("--num-envs", "1", "--total-steps", str(total), "--device", "cpu", *more)
    return settings_for(run_dir, "local-demo", *argv, **CHANGES)


def test_the_papers_recipes_play_the_goals_of_their_seed_and_others_the_same() -> None:
    for name in recipes.names():
        if recipes.load(name).environment is GYMNASIUM:
            continue
        runs = read_each(["--recipe", name, "--seeds", "0,7", "--total-steps", "1"], {})
        expected = [0, 7] if name in OF_THE_PAPER else [42, 42]
        assert [run.goal_seed for run in runs] == expected, name


def test_the_goals_are_those_of_the_seed() -> None:
    recipe = recipes.load("mclean2025-mt10")
    entry, values = recipe.entry, recipe.values
    found = [factory_for(entry, values, ["reach-v3"], 0, seed)(0)._tasks[0].data for seed in (7, 7, 42)]
    assert found[0] == found[1] != found[2]
    assert factory_for(entry, values, ["reach-v3"]) == MetaworldFactory(("reach-v3",), 42, 50)


@pytest.mark.slow
def test_a_resumed_run_and_its_model_keep_the_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(goal_settings(tmp_path, 30, "--seed", "7")) == 0
    again = goal_settings(tmp_path, 60, "--seed", "8", "--resume")
    assert train(again) == 0
    assert "on with the goals of seed 7, which it began with" in events(tmp_path)
    assert newest(again)["model"]["about"]["goal_seed"] == load_model(tmp_path).goal_seed == 7
    played = []

    class Spy(evaluator.Evaluator):
        def __init__(self, factory: Any, *rest: Any, **more: Any) -> None:
            played.append(factory)
            super().__init__(factory, *rest, **more)

    monkeypatch.setattr(evaluator, "Evaluator", Spy)
    assert evaluate([str(tmp_path), "--episodes", "1"]) == 0
    assert played == [MetaworldFactory(("reach-v3",), 7, 50, again.recipe.values["episode_steps"])]


def test_other_goals_are_other_starts() -> None:
    """The way to a start that all goals of the usual list share is not taken for another list's."""
    starts = [MetaworldFactory(("drawer-open-v3",), seed)(0).reset(3) for seed in (42, 7)]
    assert not np.array_equal(*starts)
