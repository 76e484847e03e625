"""Every shipped profile with a recipe can be started."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clusterkit.config.models import Wandb
from clusterkit.resources import TEMPLATES
from clusterkit.runs.program import program
from tests.config.conftest import Place, place
from trainer.recipe import load
from trainer.settings import read_settings

__all__ = ["place"]

RECIPE_OF = {
    file.stem: values["recipe"]
    for file in sorted((TEMPLATES / "profiles").glob("*.toml"))
    if "recipe" in (values := tomllib.loads(file.read_text()))
}


@pytest.mark.parametrize("name", RECIPE_OF)
def test_a_preset_is_what_the_trainer_takes(place: Place, tmp_path: Path, name: str) -> None:
    profile = place.load().profile(name)
    how = {"own_program": None, "arguments": (), "overrides": {}, "unlock": (), "seed": 1, "wandb": Wandb()}
    settings = read_settings([*program(profile, **how).argv[4:], "--run-dir", str(tmp_path)], {})
    assert settings.recipe == load(RECIPE_OF[name])
    assert settings.num_envs == profile.num_envs
    assert 1.0 <= settings.total_steps / profile.total_steps < 1.01, "whole rollouts"
