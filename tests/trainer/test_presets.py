"""Every shipped profile with a recipe starts, learns, and goes on after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.config.models import Profile, Wandb
from clusterkit.plan import program
from clusterkit.resources import resource
from tests.config.conftest import Place, place
from tests.trainer.runs import StopAt, newest, run
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.envs.metaworld import MetaworldFactory
from trainer.recipe import load
from trainer.recipe.kinds import on_metaworld
from trainer.settings import TrainSettings, read_settings

__all__ = ["place"]

PROFILES = sorted(
    file.stem
    for file in resource("templates", "profiles").glob("*.toml")
    if "\nrecipe = " in file.read_text()
)
ENVS, UPDATES = 2, 3


def argv_of(profile: Profile, run_dir: Path) -> list[str]:
    """What `submit` would start, with little to do: three updates of the recipe's own networks."""
    assert profile.recipe is not None
    if load(profile.recipe).algorithm == "sac":
        values = {
            "tasks": "reach",
            "warmup_steps": "4",
            "batch_size": "16",
            "replay_capacity": "10000",
            "env_steps_per_update": "2",
        }
        steps = 4 + 2 * UPDATES
    else:
        values = {"rollout_size": "4", "epochs": "1", "batch_size": "4"}
        if load(profile.recipe).algorithm == "a2c":
            values = {"rollout_size": "4"}
        if "tasks" in load(profile.recipe).values:
            values |= {"tasks": "reach", "episode_steps": "2"}
        steps = 4 * UPDATES
    started = program(
        profile,
        own_program=None,
        arguments=(),
        overrides=values,
        unlock=tuple(values),
        seed=1,
        wandb=Wandb(),
        run_id="tiny",
        run_dir=str(run_dir),
    )
    few = ["--total-steps", str(steps), "--run-dir", str(run_dir), "--device", "cpu"]
    none = ["--eval-every", "0", "--checkpoint-every", "0", "--workers", "0", "--wandb", "disabled"]
    return [*started.argv[4:], *few, *none]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_a_preset_starts_learns_and_resumes(place: Place, tmp_path: Path, name: str) -> None:
    profile = place.load().profile(name).model_copy(update={"num_envs": ENVS})
    settings = read_settings(argv_of(profile, tmp_path), {})
    factory = factory_of(settings)
    steps = settings.total_steps // ENVS
    assert run(settings, factory, stop=StopAt(steps - 1)).code == 85
    before = newest(settings)["state"]["progress"]["updates"]
    assert run(settings, factory, resume=True).code == 0
    progress = newest(settings)["state"]["progress"]
    assert 1 <= before < progress["updates"] == UPDATES
    assert progress["step"] == settings.total_steps


def factory_of(settings: TrainSettings) -> GymnasiumFactory | MetaworldFactory:
    values = settings.recipe.values
    if not on_metaworld(values):
        return GymnasiumFactory(values["environment"], actions="clipped", seed=settings.seed)
    return MetaworldFactory(settings.tasks, goals_per_task=values["goals_per_task"])
