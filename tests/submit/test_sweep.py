"""Grids of values, and what a value means for a run."""

from __future__ import annotations

from typing import Any

import pytest

from clusterkit.config.models import Profile
from clusterkit.errors import ConfigError
from clusterkit.runs.program import filled
from clusterkit.submit.sweep import Meaning, SweepAxis, axes, grid, meaning
from trainer import recipe as recipes


def profile(**more: Any) -> Profile:
    base = {"name": "p", "recipe": "mclean2025-mt10", "total_steps": 1000, "time": "4h"}
    return Profile(**{**base, **more})


def meant(values: dict[str, str], chosen: Profile | None = None, **more: Any) -> Meaning:
    arguments: dict[str, Any] = {"own_program": None, "overrides": {}, "unlock": (), "arguments": ()}
    return meaning(values, chosen or profile(), **{**arguments, **more})


def test_seeds_are_ranges_and_lists() -> None:
    assert axes("42..45", ()) == (SweepAxis("seed", ("42", "43", "44", "45")),)
    assert axes("1,2, 5..6", ())[0].values == ("1", "2", "5", "6")
    assert axes(None, ["seed=3..4"])[0].values == ("3", "4")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ("", "not a seed"),
        ("a", "not a seed"),
        ("5..1", "backwards"),
        ("1,1", "twice"),
        ("1..99999999", "most"),
    ],
)
def test_wrong_seeds_are_named(seeds: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        axes(seeds, ())


@pytest.mark.parametrize(
    ("sweeps", "words"),
    [
        (["lr"], "name=value"),
        (["=1"], "'' cannot be a name"),
        (["lr=1,,2"], "missing"),
        (["lr="], "missing"),
        (["lr=1", "lr=2"], "swept twice"),
        (["lr=1,1"], "twice"),
        (["a=" + ",".join(map(str, range(200))), "b=" + ",".join(map(str, range(200)))], "40,000"),
    ],
)
def test_wrong_sweeps_are_named(sweeps: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        axes(None, sweeps)


def test_the_last_axis_varies_fastest_and_profiles_stay_together() -> None:
    over = axes("1,2", ["lr=a,b", "profile=x,y"])
    assert [axis.name for axis in over] == ["profile", "lr", "seed"]
    points = grid(over)
    assert len(points) == 8
    assert points[0] == {"profile": "x", "lr": "a", "seed": "1"}
    assert points[1] == {"profile": "x", "lr": "a", "seed": "2"}
    assert points[4]["profile"] == "y"
    assert grid(()) == [{}]


def test_a_recipe_value_is_set_and_the_run_has_its_own_values() -> None:
    point = meant({"gamma": "0.9", "seed": "0", "total_steps": "20_000"}, unlock=("gamma",))
    assert point.overrides == {"gamma": "0.9"}
    assert point.unlock == ("gamma",)
    assert point.seed == 0
    assert point.profile.total_steps == 20_000
    assert point.env == {
        "CLUSTERKIT_SWEEP_GAMMA": "0.9",
        "CLUSTERKIT_SWEEP_SEED": "0",
        "CLUSTERKIT_SWEEP_TOTAL_STEPS": "20_000",
    }
    assert point.unplaced == ()


def test_a_task_chooses_its_recipe_where_there_is_one() -> None:
    assert meant({"task": "MT50"}, unlock=("task",)).profile.recipe == "mclean2025-mt50"
    assert meant({"task": "MT10"}).profile.recipe == "mclean2025-mt10"
    other = meant({"task": "reach"}, unlock=("task",))
    assert other.profile.recipe == "mclean2025-mt10"
    assert other.overrides == {"tasks": "reach"}
    assert other.unlock == ("tasks",)


def test_lr_is_every_learning_rate_of_the_recipe() -> None:
    point = meant({"lr": "1e-4"}, unlock=("lr",))
    rates = {name for name in recipes.load("mclean2025-mt10").values if "learning_rate" in name}
    assert set(point.overrides) == set(point.unlock) == rates
    with pytest.raises(ConfigError, match="both change"):
        meant({"lr": "1e-4"}, overrides={"actor_learning_rate": "1"})


def test_a_name_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="no value 'gama'"):
        meant({"gama": "0.9"})
    assert meant({"gama": "0.9"}, arguments=("--x={gama}",)).arguments == ("--x=0.9",)


def test_an_own_program_gets_values_in_its_arguments_and_environment() -> None:
    arguments = ("--lr", "{lr}", "{other}", "{{lr}}", "${lr}", "{{seed}}", "s{seed}{lr}", "{}", '{"a": 1}')
    point = meant(
        {"lr": "1e-4", "seed": "3", "wide": "x"}, own_program=("python", "train.py"), arguments=arguments
    )
    # {seed} is filled in with every run, swept or not: it stays until then.
    kept = ("{other}", "{lr}", "${lr}", "{{seed}}")
    assert point.arguments == ("--lr", "1e-4", *kept, "s{seed}1e-4", "{}", '{"a": 1}')
    assert point.unplaced == ("wide",)
    assert point.overrides == {}
    assert meant({"total_steps": "3"}, own_program=("python", "train.py")).unplaced == ("total_steps",)
    assert meant({"total_steps": "3"}, own_program=("python", "x.py", "--n={total_steps}")).unplaced == ()


def test_values_of_the_wrong_kind_are_named() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        meant({"total_steps": "0"})
    with pytest.raises(ConfigError, match="does not use one"):
        meant({"recipe": "guide-mt10"}, own_program=("python", "train.py"))
    with pytest.raises(ConfigError, match="unknown recipe 'guide-mt1O'; did you mean guide-mt10"):
        meant({"recipe": "guide-mt1O", "gamma": "1"})
    with pytest.raises(ConfigError, match="unknown recipe '0'; available: a2c, brc-mt10, dqn, guide-mt10, "):
        meant({"recipe": "0", "gamma": "1"})


def test_a_value_that_reads_like_a_placeholder_is_none() -> None:
    value = "{seed} {{seed}} {run_dir} {other} {x}"
    point = meaning(
        {"x": value, "other": "1"},
        profile(),
        own_program=("python", "train.py", "{x}"),
        overrides={},
        unlock=(),
        arguments=("--x={x}", "{seed}"),
    )
    argv = (*(point.profile.program or ()), *point.arguments)
    shown = filled(argv, {"CLUSTERKIT_SEED": "7"}, "a-1", "/r/a-1")
    assert shown == ("python", "train.py", value, f"--x={value}", "7")
    assert point.env["CLUSTERKIT_SWEEP_X"] == value
