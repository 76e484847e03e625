from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer import recipe
from trainer.algorithms.sac_config import SACConfig
from trainer.recipe import RecipeError, RecipeLocked
from trainer.recipe.sizes import Sizes
from trainer.recipe.tables import DIRECTORY, read_table


def differences(one: str, other: str) -> dict[str, object]:
    """What the second recipe has that the first has otherwise."""
    ours, theirs = recipe.load(one).values, recipe.load(other).values
    return {key: theirs[key] for key in ours if ours[key] != theirs[key]}


def test_it_needs_the_standard_library_alone() -> None:
    code = "import sys, trainer.recipe as r; [r.load(n) for n in r.names()]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    roots = {name.split(".")[0] for name in loaded.stdout.split()}
    # What site-packages' own .pth files import at start-up is not ours.
    bare = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True
    )
    roots -= {name.split(".")[0] for name in bare.stdout.split()}
    assert roots - set(sys.stdlib_module_names) == {"trainer"}


def test_every_recipe_is_complete() -> None:
    for name in recipe.names():
        loaded = recipe.load(name)
        assert loaded.description
        assert loaded.source
        assert not loaded.modified


RATES = [f"{network}_learning_rate" for network in ("actor", "critic", "alpha")]
OF_ROLLOUTS = ("rollout_size", "batch_size", "epochs", "hidden")
GUIDE = {"tasks": ("MT10",), "replay_capacity": 2_000_000, "batch_size": 512, "actor_hidden": (256, 256)}
GUIDE |= {"critic_hidden": (1024,) * 3, "env_steps_per_update": 10, "warmup_steps": 40_000}
PAPER = {"actor_hidden": (1024,) * 3, "critic_hidden": (1024,) * 3, "heads": "multi-head", "one_hot": True}
PAPER |= {"init": "he_uniform", "batch_size": 1280, "replay_capacity": 1_000_000, "adam_eps": 1e-5}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("guide-mt10", GUIDE | dict.fromkeys(RATES, 3e-4)),
        ("guide-mt10-debug", {"batch_size": 128, "replay_capacity": 100_000, "actor_learning_rate": 1e-3}),
        ("mclean2025-mt10", PAPER | {"max_grad_norm": 1.0}),
        ("guide-ppo-fast", zip(OF_ROLLOUTS, (16 * 256, 2048, 15, (512, 512)), strict=True)),
        ("guide-ppo-heavy", zip(OF_ROLLOUTS, (32 * 256, 4096, 20, (1024, 512, 256)), strict=True)),
        ("guide-ppo-beast", zip(OF_ROLLOUTS, (64 * 512, 8192, 30, (1024, 512, 512, 256)), strict=True)),
        ("rtx4070-ppo", zip(OF_ROLLOUTS, (32 * 256, 4096, 20, (1024, 512, 256)), strict=True)),
        ("rtx4060-ppo", zip(OF_ROLLOUTS, (8192, 512, 40, (256, 256)), strict=True)),
    ],
)
def test_a_recipe_has_the_values_of_its_source(name: str, values: object) -> None:
    assert recipe.load(name).values.items() >= dict(values).items()


def test_recipes_differ_from_those_they_vary_as_their_sources_say() -> None:
    assert differences("guide-mt10", "guide-mt10-conservative") == {}
    aggressive = {"batch_size": 2048, "replay_capacity": 10_000_000} | dict.fromkeys(RATES, 5e-4)
    assert differences("guide-mt10", "guide-mt10-aggressive") == aggressive
    mt50 = {"tasks": ("MT50",), "batch_size": 6400, "replay_capacity": 5_000_000}
    mt50 |= {"env_steps_per_update": 50.0, "warmup_steps": 200_000}
    assert differences("mclean2025-mt10", "mclean2025-mt50") == mt50


@pytest.mark.parametrize(
    ("name", "tasks", "parameters"), [("mtppo-mt10", 10, 344_008), ("mtppo-mt50", 50, 360_008)]
)
def test_multi_task_ppo_is_the_authors(name: str, tasks: int, parameters: int) -> None:
    """By examples/multi_task/ppo_mt10.py of rainx0r/metaworld-algorithms and what it takes by default."""
    loaded = recipe.load(name)
    assert dict(loaded.values) == {
        "tasks": (f"MT{tasks}",),
        "hidden": (400, 400, 400),
        "activation": "relu",
        "log_std_min": -20.0,
        "log_std_max": 2.0,
        "learning_rate": 3e-4,
        "learning_rate_schedule": "constant",
        "adam_eps": 1e-5,
        "max_grad_norm": 1.0,
        "rollout_size": tasks * 10_000,
        "batch_size": tasks * 10_000 // 32,
        "epochs": 16,
        "gamma": 0.99,
        "gae_lambda": 0.97,
        "baseline_ridge": 1e-5,
        "clip_range": 0.2,
        "target_kl": 0.0,
        "entropy_coefficient": 5e-3,
        "entropy_schedule": "constant",
        "normalize_advantages": False,
        "episode_steps": 500,
        "goals_per_task": 50,
        "goals": "seed",
        "evaluation_episodes": 50,
        "evaluation_goals": 50,
    }
    assert loaded.entry.usual_envs(loaded.values) == tasks
    assert recipe.batches(name, loaded.values, tasks).count == 32
    assert Sizes(loaded).layout is None
    count = Sizes(loaded).count
    assert (count.actor, count.trained) == (parameters, parameters)


def test_what_multi_task_ppo_refuses() -> None:
    loaded = recipe.load("mtppo-mt10")
    for changes, message in (
        ({"log_std_min": "3"}, r"log_std_max = 2.0 is less than log_std_min \(3.0\)"),
        ({"goals_per_task": "10"}, r"goals_per_task = 10 is less than evaluation_goals \(50\)"),
        ({"tasks": "reech"}, "did you mean reach"),
        ({"environment": "CartPole-v1"}, "has no value 'environment'"),
        ({"value_coefficient": "0.5"}, "has no value 'value_coefficient'"),
    ):
        with pytest.raises(RecipeError, match=message):
            loaded.override(changes, set(changes))


def test_a_recipe_with_an_environment_has_the_keys_of_one() -> None:
    loaded = recipe.load("sac").override({"environment": "mine:Env-v3"}, {"environment"})
    assert loaded.values["environment"] == "mine:Env-v3"
    assert "tasks" not in loaded.values
    for key, value in (("tasks", "reach"), ("goals_per_task", "3")):
        with pytest.raises(RecipeError, match=f"has no value '{key}'"):
            loaded.override({key: value}, {key})
    with pytest.raises(RecipeError, match="replay_capacity = 100 is less than batch_size"):
        loaded.override({"replay_capacity": "100"}, {"replay_capacity"})


def test_task_sets_are_those_of_metaworld() -> None:
    env_dict = pytest.importorskip("metaworld.env_dict", reason="the extra `train` is not installed")
    for name in ("MT10", "MT25", "MT50"):
        assert recipe.task_names(name) == tuple(getattr(env_dict, f"{name}_V3"))
    assert set(recipe.task_names("MT50")) == set(env_dict.ALL_V3_ENVIRONMENTS)


def test_task_names() -> None:
    assert recipe.task_names(["reach", "door-close-v3"]) == ("reach-v3", "door-close-v3")
    with pytest.raises(RecipeError, match=r"'pick-plase'; did you mean pick-place-v3"):
        recipe.task_names(["pick-plase"])
    with pytest.raises(RecipeError, match="MT10"):
        recipe.task_names("MT100")
    with pytest.raises(RecipeError, match="twice: reach-v3"):
        recipe.task_names(["MT10", "reach"])
    with pytest.raises(RecipeError, match="no task"):
        recipe.task_names([])


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"'guide-mt1'; did you mean guide-mt10"):
        recipe.load("guide-mt1")
    guide = recipe.load("guide-mt10")
    with pytest.raises(RecipeError, match=r"'batchsize'; did you mean batch_size"):
        guide.override({"batchsize": "1"})
    with pytest.raises(RecipeError, match=r"'gama'; did you mean gamma"):
        guide.override({}, {"gama"})


def test_a_locked_value_says_how_to_unlock_it() -> None:
    guide = recipe.load("guide-mt10")
    with pytest.raises(RecipeLocked, match=r"batch_size is locked to 512 .* --unlock batch_size allows 1024"):
        guide.override({"batch_size": "1024"}, {"gamma"})
    changed = guide.override({"batch_size": "1_024"}, {"batch_size"})
    assert changed.values["batch_size"] == 1024
    assert changed.modified == {"batch_size": [512, 1024]}
    assert guide.values["batch_size"] == 512


def test_the_locked_value_itself_is_no_modification() -> None:
    guide = recipe.load("guide-mt10")
    assert guide.override({"batch_size": "512", "gamma": "0.99", "actor_hidden": "256, 256"}) == guide


def test_overriding_twice_remembers_the_lock_and_the_way_back() -> None:
    once = recipe.load("guide-mt10").override({"gamma": "0.9"}, {"gamma"})
    assert once.override({"gamma": "0.8"}, {"gamma"}).modified == {"gamma": [0.99, 0.8]}
    assert once.override({"gamma": "0.99"}).modified == {}
    with pytest.raises(RecipeLocked):
        once.override({"gamma": "0.8"})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("batch_size", "2e3", 2000),
        ("gamma", ".5", 0.5),
        ("env_steps_per_update", "0.0009765625", 2 / 2048),
        ("layer_norm", "True", True),
        ("heads", "multi-head", "multi-head"),
        ("critic_hidden", "400,400,400", (400, 400, 400)),
        ("critic_hidden", "[400]", (400,)),
        ("tasks", "reach,push", ("reach", "push")),
        ("tasks", '["MT50"]', ("MT50",)),
    ],
)
def test_text_is_read_by_the_type_of_the_value(key: str, text: str, value: object) -> None:
    changed = recipe.load("guide-mt10").override({key: text}, {key})
    assert changed.values[key] == value
    assert type(changed.values[key]) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("gamma", "1", "must be below 1"),
        ("gamma", "nan", "gamma = NaN"),
        ("reward_scale", "inf", "must be finite"),
        ("tau", "1.5", "must be at most 1"),
        ("batch_size", "many", "cannot be read as int"),
        ("batch_size", "1.5", "cannot be read as int"),
        ("batch_size", "1e-3", "must be an int"),
        ("layer_norm", "1", "cannot be read as bool"),
        ("heads", "two", "must be one of one-hot, multi-head"),
        ("actor_hidden", "[256, true]", "must be an int"),
        ("actor_hidden", ",", "not empty"),
        ("actor_hidden", "[256", "cannot be read as ints"),
        ("batch_size", "9", "less than the number of tasks"),
        ("warmup_steps", "9", "less than the number of tasks"),
        ("replay_capacity", "511", "less than batch_size"),
        ("evaluation_goals", "51", "at most 50"),
        ("log_std_min", "3", "log_std_max = 2.0 is less"),
        ("one_hot", "false", "leaves the task unknown"),
        ("tasks", "reach,raech", "unknown Meta-World task 'raech'"),
        ("critic_network", "residual", "needs layer_norm = true"),
        ("value_bins", "1", "tells nothing"),
        ("value_bins", "5000", "at most 1001"),
        ("value_bound", "0", "must be above 0"),
        ("critic_reduction", "max", "must be one of min, mean"),
    ],
)
def test_values_out_of_range(key: str, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe.load("guide-mt10").override({key: text}, {key})


@pytest.mark.slow
@given(st.data())
def test_no_text_does_more_than_raise_a_recipe_error(data: st.DataObject) -> None:
    base = recipe.load(data.draw(st.sampled_from(recipe.names())))
    key = data.draw(st.sampled_from(sorted(base.values)))
    text = data.draw(
        st.text(max_size=12) | st.floats().map(str) | st.integers().map(str) | st.sampled_from(["[]", "{}"])
    )
    try:
        changed = base.override({key: text}, {key})
    except RecipeError:
        return
    assert set(changed.modified) <= {key}
    # What was accepted is accepted again in its own words, and changes nothing more.
    again = (
        json.dumps(changed.values[key])
        if isinstance(changed.values[key], tuple)
        else str(changed.values[key])
    )
    assert changed.override({key: again}, {key}) == changed


def test_values_cannot_be_changed_in_place() -> None:
    guide = recipe.load("guide-mt10")
    with pytest.raises(TypeError):
        guide.values["gamma"] = 0.5  # type: ignore[index]
    with pytest.raises(TypeError):
        guide.modified["gamma"] = [0.99, 0.5]  # type: ignore[index]


def test_values_that_do_not_go_together() -> None:
    strong = recipe.load("strong-mt10")
    with pytest.raises(RecipeError, match="the same width all through critic_hidden"):
        strong.override({"critic_hidden": "1024,512"}, {"critic_hidden"})
    with pytest.raises(RecipeError, match="needs reward_scale = 1"):
        strong.override({"reward_scale": "0.1"}, {"reward_scale"})


def test_what_goes_beyond_the_paper_says_so_everywhere() -> None:
    beyond = {name for name in recipe.names() if recipe.load(name).label == "beyond-paper"}
    assert beyond == {"strong-mt10", "throughput-mt10", "brc-mt10"}
    for name in beyond:
        loaded = recipe.load(name)
        assert loaded.description.startswith("Beyond the paper")
        assert loaded.as_json()["label"] == "beyond-paper"
        # also with changes of one's own
        assert loaded.override({"gamma": "0.9"}, {"gamma"}).as_json()["label"] == "beyond-paper"
    assert differences("mclean2025-mt10", "throughput-mt10") == {
        "env_steps_per_update": 20.0,
        "goals": "fixed",
        "stagger_episodes": True,
    }


def test_as_json_is_plain() -> None:
    changed = recipe.load("local-demo").override({"actor_hidden": "64,64"}, {"actor_hidden"})
    plain = changed.as_json()
    assert plain == json.loads(json.dumps(plain))
    assert plain["modified"] == {"actor_hidden": [[128, 128], [64, 64]]}
    assert set(plain) == {"name", "algorithm", "values", "modified"}


def text_of(name: str) -> str:
    return (DIRECTORY / f"{name}.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gamma = 0.99", "", "missing value gamma"),
        ("gamma = 0.99", "gamma = 0.99\ngama = 1", "unknown value 'gama'; did you mean gamma"),
        ("gamma = 0.99", 'gamma = "0.99"', "must be a float"),
        ("gamma = 0.99", "gamma = true", "must be a float"),
        ("batch_size = 512", "batch_size = 512.0", "must be an int"),
        ("gamma = 0.99", "gamma = ", "not valid TOML"),
        ('algorithm = "sac"', 'algorithm = "sag"', "unknown algorithm 'sag'; did you mean sac"),
        ("source = ", "sauce = ", "unknown entry 'sauce'; did you mean source"),
    ],
)
def test_a_broken_file(old: str, new: str, message: str) -> None:
    text = text_of("guide-mt10")
    assert old in text
    with pytest.raises(RecipeError, match=message):
        recipe.parse("mine", text.replace(old, new))


def test_a_word_in_the_place_of_a_number() -> None:
    fast = recipe.load("guide-ppo-fast")
    assert fast.override({"batch_size": "auto"}, {"batch_size"}).modified == {"batch_size": [2048, "auto"]}
    with pytest.raises(RecipeError, match="cannot be read as int"):
        fast.override({"batch_size": "automatic"}, {"batch_size"})


def test_every_value_is_documented() -> None:
    for path in (DIRECTORY / "schemas").rglob("*.toml"):
        schema = tomllib.loads(path.read_text(encoding="utf-8"))
        for key, rule in schema.items():
            assert rule["doc"], key
            known = {"type", "doc", "choices", "words", "min", "max", "above", "below", "default"}
            assert rule.keys() <= known


def test_what_a_file_does_not_name_is_as_the_learner_has_it() -> None:
    schema = read_table("schemas/metaworld/sac")
    optional = {key: rule["default"] for key, rule in schema.items() if "default" in rule}
    del optional["goals"]  # the environments' business
    assert optional.keys() == {
        *("critic_network", "critic_reduction", "value_bins", "value_bound", "value_smoothing"),
        *("weight_decay", "normalize_rewards", "temperature", "log_std_bounding"),
    }
    defaults = {field.name: field.default for field in fields(SACConfig)}
    assert {key: defaults[key] for key in optional} == optional
    paper = recipe.load("mclean2025-mt10").values
    assert {key: paper[key] for key in optional} == optional
