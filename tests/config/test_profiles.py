"""The shipped profiles and cluster examples are whole, true to the recipes, and usable as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.resources import TEMPLATES
from tests.config.conftest import Place
from trainer import recipe as recipes

PROFILES = sorted((TEMPLATES / "profiles").glob("*.toml"))
CLUSTERS = sorted((TEMPLATES / "clusters").glob("*.toml"))
PROMISED = {
    *("a40-2m", "a100-20m", "l40s-2m", "l40s-20m", "h100-20m", "h200-20m", "mt50-100m"),
    *("mt10-test", "check", "debug", "conservative", "aggressive", "local-demo"),
    *("fast", "heavy", "beast", "rtx4060", "rtx4060-ppo", "rtx4060-a2c", "rtx4070"),
    *("rtx4060-td3", "rtx4060-dqn", "rtx4070-td3", "rtx4070-dqn"),
    *("strong-mt10", "throughput-mt10", "mtppo-mt10", "mtppo-mt50"),
}
ROLLOUTS = {
    *("fast", "heavy", "beast", "rtx4060-ppo", "rtx4060-a2c", "rtx4070"),
    *("mtppo-mt10", "mtppo-mt50"),
}
"""Those that learn from rollouts."""


def test_all_promised_profiles_are_there() -> None:
    assert {file.stem for file in PROFILES} == PROMISED


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.stem)
def test_a_profile_says_where_it_comes_from(file: Path) -> None:
    head = re.match(r"(?:#.*\n)+", file.read_text())
    assert head
    assert re.search(r"[Gg]uide|McLean", head[0])


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_profile_is_whole(place: Place, name: str) -> None:
    profile = place.load().profile(name)
    assert profile.description
    assert (profile.recipe is None) == (profile.program is not None)
    if profile.recipe is None:
        return
    assert profile.recipe in recipes.names()
    assert profile.num_envs is not None
    assert max(profile.eval_every, profile.checkpoint_every) <= profile.total_steps
    assert profile.total_steps % profile.eval_every == 0
    assert profile.total_steps % profile.checkpoint_every == 0


@pytest.mark.parametrize("name", sorted(PROMISED - ROLLOUTS - {"check"}))
def test_training_goes_on_after_the_warm_up(place: Place, name: str) -> None:
    profile = place.load().profile(name)
    recipe = recipes.load(profile.recipe)
    assert recipe.entry.loop == "off-policy"
    assert recipe.values["warmup_steps"] < profile.total_steps / 2


@pytest.mark.parametrize("name", ["h100-20m", "h200-20m", "mt50-100m", "mtppo-mt10", "mtppo-mt50"])
def test_the_papers_runs_have_one_environment_a_task(place: Place, name: str) -> None:
    profile = place.load().profile(name)
    tasks = recipes.task_names(recipes.load(profile.recipe).values["tasks"])
    assert profile.num_envs == len(tasks)


@pytest.mark.parametrize("name", sorted(ROLLOUTS))
def test_environments_divide_the_rollout(place: Place, name: str) -> None:
    profile = place.load().profile(name)
    assert recipes.load(profile.recipe).values["rollout_size"] % profile.num_envs == 0


@pytest.mark.parametrize("file", CLUSTERS, ids=lambda file: file.stem)
def test_an_example_cluster_works_unedited_and_names_no_person(place: Place, file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"e\d{6,}|/home/(?!\$USER)\w", text)
    settings = place.load(text)
    cluster = settings.cluster()
    profile = settings.profile()
    assert cluster.kind == "slurm"
    assert profile.gpu in cluster.gpus
    assert any(option.startswith(("--gpus=", "--gres=")) for option in sbatch_options(cluster, profile))


def test_the_datalab_asks_for_gpus_as_its_guide_does(place: Place) -> None:
    settings = place.load((TEMPLATES / "clusters" / "tu-wien-datalab.toml").read_text())
    assert "--gpus=a40:1" in sbatch_options(settings.cluster(), settings.profile("a40-2m"))
    assert settings.cluster().root == "/share/$USER/clusterkit"


def test_what_a_file_sets_for_a_program_that_cannot_get_it_is_known(place: Place) -> None:
    profiles = """
        [profiles.base]
        time = "5m"
        stop_at = 0.9
        [profiles.mine]
        extends = "base"
        threads = 2
        workers = 0
        [profiles.local-demo]
        eval_every = 1000
        [profiles.checked]
        extends = "base"
        program = ["python", "-m", "trainer", "check"]
        """
    own = place.load(f'[project]\nprogram = ["./x"]\n{profiles}')
    assert own.unread(own.profile("mine")) == ("stop_at", "workers")
    assert own.unread(own.profile("local-demo")) == ("eval_every",)
    assert own.unread(own.profile("check")) == ()
    again = own.with_values({"profiles": {"mine": {"precision": "fp32"}}})
    assert again.unread(again.profile("mine")) == ("stop_at", "workers")
    bundled = place.load(profiles)
    assert [bundled.unread(bundled.profile(name)) for name in ("mine", "checked")] == [(), ("stop_at",)]
