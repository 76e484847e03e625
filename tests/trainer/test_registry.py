"""The entries of algorithms: found by name, read without PyTorch, and what they answer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainer import algorithms, recipe
from trainer.recipe import RecipeError, registry, tables
from trainer.recipe import recipe as recipe_module
from trainer.recipe.environments import GYMNASIUM, KINDS, METAWORLD, split_environment
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

BOX, DISCRETE = Spaces(3, 2), Spaces(4, 1, (2,))


@pytest.mark.parametrize("name", registry.names())
def test_an_entry_has_the_name_of_its_module_and_its_schemas(name: str) -> None:
    entry = registry.algorithm(name)
    assert entry.name == name
    assert entry.loop in ("off-policy", "on-policy")
    assert entry.environments
    assert all(entry.on(kind).name == name for kind in entry.environments)
    assert entry.box or entry.discrete, "it learns something"


def test_labels_are_told_apart() -> None:
    labels = [registry.algorithm(name).label for name in registry.names()]
    assert len({*labels}) == len(labels)


def test_entries_are_read_without_torch() -> None:
    code = (
        "import sys; from trainer.recipe import environments, registry\n"
        "names, kinds = registry.names(), environments.KINDS\n"
        "[registry.algorithm(name).on(kind) for name in names for kind in kinds]; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "gymnasium", "mujoco"} & {*loaded.stdout.split()}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match="unknown algorithm 'pp0'; did you mean ppo"):
        registry.algorithm("pp0")


def test_an_algorithm_that_cannot_learn_an_environment_names_those_that_can() -> None:
    sac, ppo = registry.algorithm("sac"), registry.algorithm("ppo")
    assert registry.unlearnable(sac, "Pendulum-v1", BOX.choices) == ""
    assert registry.unlearnable(ppo, "CartPole-v1", DISCRETE.choices) == ""
    reason = registry.unlearnable(sac, "CartPole-v1", DISCRETE.choices)
    assert reason == "CartPole-v1 has discrete actions, which SAC cannot learn"
    assert {"A2C", "PPO"} <= {*registry.learners(DISCRETE.choices)}
    assert "SAC" not in registry.learners(DISCRETE.choices)
    assert {"A2C", "PPO", "SAC"} <= {*registry.learners(BOX.choices)}


@pytest.mark.parametrize(
    ("name", "spaces", "reason"),
    [
        ("sac", DISCRETE, "has discrete actions, which SAC cannot learn"),
        ("td3", DISCRETE, "has discrete actions, which TD3 cannot learn"),
        ("td3", BOX, ""),
        ("dqn", BOX, "has continuous actions, which DQN cannot learn"),
        ("dqn", Spaces(4, 1, (3,)), ""),
        ("dqn", Spaces(4, 2, (3, 2)), "has several discrete actions at once, which DQN cannot learn"),
    ],
)
def test_sizes_say_what_a_recipe_cannot_learn(name: str, spaces: Spaces, reason: str) -> None:
    assert Sizes(recipe.load(name), given=spaces).unknown.partition(" ")[2] == reason


def test_ppo_is_another_learner_on_several_tasks() -> None:
    alone, several = recipe.load("ppo").entry, recipe.load("mtppo-mt10").entry
    assert (alone.name, alone.loop) == (several.name, several.loop)
    assert (alone.learner().__name__, several.learner().__name__) == ("PPO", "MultiTaskPPO")


@pytest.mark.parametrize("name", recipe.names())
def test_a_recipe_runs_on_one_kind_of_environments_that_its_algorithm_knows(name: str) -> None:
    loaded = recipe.load(name)
    assert loaded.environment in loaded.entry.environments
    assert [kind.key for kind in KINDS if kind.key in loaded.values] == [loaded.environment.key]


def test_kinds_tell_tasks_and_the_usual_number_of_environments() -> None:
    tasks, alone = recipe.load("guide-mt10"), recipe.load("ppo")
    assert METAWORLD.tasks(tasks.values) == recipe.task_names("MT10")
    assert GYMNASIUM.tasks(alone.values) == (alone.values["environment"],)
    assert tasks.entry.usual_envs(tasks.values) == 10
    assert alone.entry.usual_envs(alone.values) == 8
    assert recipe.load("sac").entry.usual_envs(recipe.load("sac").values) == 1


def test_a_new_algorithm_is_new_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = tmp_path / "recipes"
    shutil.copytree(tables.DIRECTORY, recipes)
    schema = recipes / "schemas" / "gymnasium" / "sac.toml"
    shutil.copy(schema, schema.with_name("guessing.toml"))
    text = (recipes / "sac.toml").read_text(encoding="utf-8")
    (recipes / "guess.toml").write_text(text.replace('algorithm = "sac"', 'algorithm = "guessing"'))
    (tmp_path / "guessing.py").write_text(
        "from trainer.algorithms.sac import SACAlgorithm\n"
        "class Guessing(SACAlgorithm):\n"
        "    name, label, box, discrete = 'guessing', 'Guessing', None, True\n"
        "ENTRY = Guessing()\n"
    )
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    for module in (tables, registry, sys.modules["trainer.recipe.algorithm"], recipe_module):
        monkeypatch.setattr(module, "DIRECTORY", recipes)
    registry.names.cache_clear()
    try:
        loaded = recipe.load("guess")
        assert loaded.entry.label == "Guessing"
        assert "Guessing" in registry.learners(DISCRETE.choices)
        reason = Sizes(loaded.override({"environment": "Pendulum-v1"}, {"environment"})).unknown
        assert reason == "Pendulum-v1 has continuous actions, which Guessing cannot learn"
    finally:
        registry.names.cache_clear()
        sys.modules.pop("trainer.algorithms.guessing", None)


def test_the_arguments_of_an_environment_are_json_or_text() -> None:
    name = "a:X/Y-v1?n=4&rate=1e-3&on=true&off=False&no=None&name=reach-v3&text=a%26b&list=[1,2]&s=%224%22"
    assert split_environment(name) == (
        "a:X/Y-v1",
        {
            "n": 4,
            "rate": 1e-3,
            "on": True,
            "off": False,
            "no": None,
            "name": "reach-v3",
            "text": "a&b",
            "list": [1, 2],
            "s": "4",
        },
    )
    assert split_environment("CartPole-v1") == ("CartPole-v1", {})


@pytest.mark.parametrize("query", ["?", "?a", "?a=1&", "?a=1&a=2", "?a b=1", "?=1"])
def test_an_argument_that_cannot_be_read_is_refused_before_anything_is_made(query: str) -> None:
    with pytest.raises(RecipeError, match=r"environment Pendulum-v1.*: the argument '.*' is "):
        recipe.load("sac").override({"environment": f"Pendulum-v1{query}"}, {"environment"})


def test_an_unknown_environment_with_arguments_is_like_one_without() -> None:
    loaded = recipe.load("sac")
    reason = Sizes(loaded.override({"environment": "HalfCheeta-v5?a=b:c"}, {"environment"})).unknown
    assert "did you mean HalfCheetah-v5" in reason
