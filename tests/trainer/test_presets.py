"""Every shipped profile with a recipe can be started, and every such recipe learns and can be resumed."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.config.models import Profile, Wandb
from clusterkit.resources import TEMPLATES
from clusterkit.runs.program import program
from tests.config.conftest import Place, place
from tests.trainer.runs import StopAt, newest, run
from trainer.envs.choice import factory_for
from trainer.recipe import Recipe, load
from trainer.settings import TrainSettings, read_settings

__all__ = ["place"]

RECIPE_OF = {
    file.stem: values["recipe"]
    for file in sorted((TEMPLATES / "profiles").glob("*.toml"))
    if "recipe" in (values := tomllib.loads(file.read_text()))
}
PROFILE_OF = {recipe: name for name, recipe in RECIPE_OF.items()}
ENVS, UPDATES = 2, 3
NETWORKS = ("actor_hidden", "critic_hidden", "hidden")


def few_values(recipe: Recipe) -> dict[str, str]:
    """What makes a recipe's updates small: few rows, and networks of its own depth that are narrow."""
    if recipe.entry.loop == "off-policy":
        values = {
            "warmup_steps": "4",
            "batch_size": "16",
            "replay_capacity": "2000",
            "env_steps_per_update": "2",
        }
    else:
        values = {"rollout_size": "4", "epochs": "1", "batch_size": "4"}
        if recipe.algorithm == "a2c":
            values = {"rollout_size": "4"}
        if "tasks" in recipe.values:
            values["episode_steps"] = "2"
    if "tasks" in recipe.values:
        values["tasks"] = "reach"
    narrow = {name: ",".join("8" for _ in recipe.values[name]) for name in NETWORKS if name in recipe.values}
    return values | narrow


def settings_of(profile: Profile, run_dir: Path, values: dict[str, str]) -> TrainSettings:
    """What `submit` would start, with values changed."""
    started = program(
        profile,
        own_program=None,
        arguments=(),
        overrides=values,
        unlock=tuple(values),
        seed=1,
        wandb=Wandb(),
    )
    return read_settings([*started.argv[4:], "--run-dir", str(run_dir)], {})


@pytest.mark.parametrize("name", RECIPE_OF)
def test_a_preset_is_what_the_trainer_takes(place: Place, tmp_path: Path, name: str) -> None:
    profile = place.load().profile(name)
    settings = settings_of(profile, tmp_path, {})
    assert settings.recipe == load(RECIPE_OF[name])
    assert settings.num_envs == profile.num_envs
    assert 1.0 <= settings.total_steps / profile.total_steps < 1.01, "whole rollouts"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", PROFILE_OF)
def test_a_preset_s_recipe_starts_learns_and_resumes(place: Place, tmp_path: Path, recipe: str) -> None:
    profile = place.load().profile(PROFILE_OF[recipe]).model_copy(update={"num_envs": ENVS})
    warmup, each = (4, 2) if load(recipe).entry.loop == "off-policy" else (0, 4)
    settings = replace(
        settings_of(profile, tmp_path, few_values(load(recipe))),
        total_steps=warmup + each * UPDATES,
        eval_every=0,
        checkpoint_every=0,
        workers=0,
        device="cpu",
        wandb="disabled",
    )
    tasks, entry = settings.tasks, settings.recipe.entry
    factory = factory_for(entry, settings.recipe.values, tasks, settings.seed, settings.goal_seed)
    steps = settings.total_steps // ENVS
    assert run(settings, factory, stop=StopAt(steps - 1)).code == 85
    before = newest(settings)["state"]["progress"]["updates"]
    assert run(settings, factory, resume=True).code == 0
    progress = newest(settings)["state"]["progress"]
    assert 1 <= before < progress["updates"] == UPDATES
    assert progress["step"] == settings.total_steps
