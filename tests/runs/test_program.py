"""Profile, recipe and arguments become argv and environment; what is wrong is found on the laptop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from clusterkit.config.models import TRAINER_ONLY, Profile, Wandb
from clusterkit.errors import ConfigError, RecipeLockedError
from clusterkit.runs.program import (
    Program,
    assignments,
    option_of,
    program,
    train_options,
    trains,
    with_option,
)
from clusterkit.runs.recipe_names import choose_recipe
from clusterkit.submit.sweep import meaning
from trainer import recipe as recipes


def profile(**more: Any) -> Profile:
    base = {
        "name": "p",
        "gpu": "a40",
        "recipe": "guide-mt10",
        "total_steps": 2_000_000,
        "num_envs": 32,
        "eval_every": 200_000,
        "checkpoint_every": 50_000,
        "time": "4h",
        "cpus": 16,
        "precision": "tf32",
    }
    return Profile(**{**base, **more})


@dataclass(frozen=True)
class Placed:
    """A program of a run whose directory is known."""

    argv: tuple[str, ...]
    env: dict[str, str]
    recipe: Mapping[str, Any] | None
    template: tuple[str, ...] | None


def planned(chosen: Profile, **more: Any) -> Placed:
    arguments: dict[str, Any] = {
        "own_program": None,
        "arguments": (),
        "overrides": {},
        "unlock": (),
        "seed": 7,
        "wandb": Wandb(entity="lab"),
    }
    found = program(chosen, **{**arguments, **more})
    argv, env = found.placed("p-1", "/r/p-1")
    return Placed(argv, env, found.recipe, found.argv if found.argv != argv else None)


def test_what_only_the_trainer_reads_are_its_options_but_those_that_every_program_gets() -> None:
    names = {name: 1 for name in TRAINER_ONLY if name not in ("recipe", "precision")}
    whole = profile(**names, device="cuda", threads=2)
    options = {word[2:].replace("-", "_") for word in train_options(whole, 1)[::2]}
    assert options | {"recipe"} == {*TRAINER_ONLY, "total_steps", "seed", "device", "threads"}


def option(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_the_trainer_gets_what_the_profile_says() -> None:
    plan = planned(profile())
    assert plan.argv[:4] == ("python", "-m", "trainer", "train")
    assert option(plan.argv, "--recipe") == "guide-mt10"
    assert option(plan.argv, "--total-steps") == "2000000"
    assert option(plan.argv, "--num-envs") == "32"
    assert option(plan.argv, "--seed") == "7"
    assert option(plan.argv, "--device") == "cuda"
    assert option(plan.argv, "--precision") == "tf32"
    assert plan.recipe["values"]["batch_size"] == 512
    assert plan.recipe["algorithm"] == "sac"
    assert plan.recipe["modified"] == {}


def test_threads_rendering_and_wandb_reach_the_environment() -> None:
    env = planned(profile(threads=2, env={"FOO": "a b"})).env
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "2"
    assert env["MUJOCO_GL"] == "egl"
    assert env["WANDB_MODE"] == "offline"
    assert env["WANDB_RUN_ID"] == "p-1"
    assert env["WANDB_DIR"] == "/r/p-1"
    assert env["WANDB_ENTITY"] == "lab"
    assert env["FOO"] == "a b"
    assert not any("KEY" in name for name in env)


def test_user_arguments_come_last_and_unchanged() -> None:
    arguments = ("--flag", "a b", "", 'q"$(x)', "ü\n")
    assert planned(profile(), arguments=arguments).argv[-5:] == arguments
    own = planned(profile(), own_program=("python", "train.py"), arguments=arguments)
    assert own.argv == ("python", "train.py", *arguments)
    assert own.recipe is None


def test_places_in_the_arguments_of_an_own_program() -> None:
    own = ("sh", "run.sh", "{run_dir}/logs", "{lr}", "{{seed}}", "${seed}", "{ seed }", '{"a": {"b": 1}}')
    plan = planned(profile(), own_program=own, arguments=("-s{seed}", "{total_steps}/{run_id}"))
    kept = ("{lr}", "{seed}", "${seed}", "{ seed }", '{"a": {"b": 1}}')
    assert plan.argv == ("sh", "run.sh", "/r/p-1/logs", *kept, "-s7", "2000000/p-1")
    assert plan.template == (*own, "-s{seed}", "{total_steps}/{run_id}")
    assert (plan.env["CLUSTERKIT_SEED"], plan.env["CLUSTERKIT_TOTAL_STEPS"]) == ("7", "2000000")
    assert planned(profile(), own_program=("python", "train.py")).template is None
    trained = planned(profile(), arguments=("{seed}",))
    assert (trained.argv[-1], trained.template) == ("{seed}", None)
    with pytest.raises(ConfigError, match="has no total_steps") as told:
        planned(profile(recipe=None, total_steps=None), own_program=("x", "{total_steps}"))
    assert "--total-steps" in (told.value.hint or "")


def test_a_program_of_the_profile_wins() -> None:
    check = profile(program=["python", "-m", "trainer", "check"], recipe=None, total_steps=None)
    assert planned(check, own_program=("x",)).argv == ("python", "-m", "trainer", "check")


def test_a_locked_value_needs_unlock_and_marks_the_run() -> None:
    with pytest.raises(RecipeLockedError, match="--unlock batch_size"):
        planned(profile(), overrides={"batch_size": "1280"})
    plan = planned(profile(), overrides={"batch_size": "1280"}, unlock=("batch_size",))
    assert plan.recipe["modified"] == {"batch_size": [512, 1280]}
    assert plan.argv[-4:] == ("--set", "batch_size=1280", "--unlock", "batch_size")


def test_wrong_recipe_values_are_named() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        planned(profile(), overrides={"batchsize": "1"}, unlock=("batchsize",))
    with pytest.raises(ConfigError, match="guide-mt10"):
        planned(profile(recipe="guide-mt1O"))
    with pytest.raises(ConfigError, match="does not use one"):
        planned(profile(), own_program=("x",), overrides={"gamma": "0.9"})


def test_every_recipe_can_be_planned() -> None:
    for name in recipes.names():
        assert planned(profile(recipe=name, num_envs=None)).recipe


def test_a_batch_that_does_not_divide_the_rollout_is_refused_before_a_job_waits_for_it() -> None:
    with pytest.raises(ConfigError, match="batch_size must divide rollout of 410 steps x 10 = 4100"):
        planned(profile(recipe="guide-ppo-fast", num_envs=10))
    auto = planned(
        profile(recipe="guide-ppo-fast", num_envs=10),
        overrides={"batch_size": "auto"},
        unlock=("batch_size",),
    )
    assert auto.recipe["values"]["batch_size"] == "auto"


def test_several_gpus_learn_together() -> None:
    assert option(planned(profile(gpus=2)).argv, "--ranks") == "2"
    assert "--ranks" not in planned(profile()).argv
    assert option(planned(profile(gpus=2, nodes=2)).argv, "--ranks") == "4"
    own = planned(profile(gpus=2), own_program=("python", "train.py"))
    assert "--ranks" not in own.argv


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"gpus": 3}, "32 environments cannot be shared by 3 ranks; 30 or 33 can"),
        ({"gpus": 3, "num_envs": 33}, "batch_size = 512 cannot be shared by 3 ranks; 510 or 513 can"),
        (
            {"gpus": 2, "sbatch": {"nodes": 2}},
            "asks for nodes by an sbatch option, which starts no process on them",
        ),
    ],
)
def test_gpus_that_cannot_share_a_run_are_refused_here(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(profile(**more))


def test_assignments() -> None:
    assert assignments(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(ConfigError, match="name=value"):
        assignments(["lr"], "--set")


TRAINING = ["python", "-m", "trainer", "train", "--total-steps", "100", "--device", "cuda", "--workers=2"]


def test_a_training_is_known_by_its_argv() -> None:
    assert trains(TRAINING)
    assert not trains(["python", "train.py", "train"])
    assert not trains([])


def test_the_value_of_an_option_is_the_last_one_given() -> None:
    assert option_of(TRAINING, "--total-steps") == "100"
    assert option_of([*TRAINING, "--total-steps=7"], "--total-steps") == "7"
    assert option_of(TRAINING, "--workers") == "2"
    assert option_of(TRAINING, "--seed") is None


def test_an_option_is_set_once() -> None:
    changed = with_option([*TRAINING, "--total-steps=7", "--lockstep"], "--total-steps", "500")
    kept = [*TRAINING[:4], "--device", "cuda", "--workers=2", "--lockstep"]
    assert changed == (*kept, "--total-steps", "500")


def test_other_hardware_changes_no_numbers() -> None:
    other = Profile(name="p", time="1h", device="cpu", threads=4, env={"A": "b"})
    training = Program(tuple(TRAINING), None, {"OMP_NUM_THREADS": "1", "WANDB_RUN_ID": "x"})
    changed = training.with_hardware(other)
    argv, env = changed.argv, changed.env
    assert option_of(argv, "--device") == "cpu"
    assert option_of(argv, "--threads") == "4"
    assert option_of(argv, "--workers") == "2"
    assert option_of(argv, "--total-steps") == "100"
    assert env == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4", "WANDB_RUN_ID": "x", "A": "b"}
    assert Program(("mine",), None, {}).with_hardware(other).argv == ("mine",)
    assert "--ranks" not in argv


def test_other_hardware_has_its_own_number_of_gpus() -> None:
    several = Program(tuple(TRAINING), None, {}).with_hardware(profile(gpus=4))
    assert option_of(several.argv, "--ranks") == "4"
    assert option_of(several.with_hardware(profile()).argv, "--ranks") == "1"


@pytest.mark.parametrize("own", [None, ("python", "train.py")])
def test_a_secret_among_the_arguments_is_refused(own: tuple[str, ...] | None) -> None:
    with pytest.raises(ConfigError, match=r"WANDB_API_KEY .* looks like a secret"):
        planned(profile(), own_program=own, arguments=("WANDB_API_KEY=abc123",))


@pytest.mark.parametrize(
    ("recipe", "given", "unlock", "changed"),
    [
        ("local-demo", {"lr": "1e-4"}, ("lr",), {"actor_learning_rate", "critic_learning_rate"}),
        ("local-demo", {"gamma": "0.9"}, ("gamma",), {"gamma"}),
        ("local-demo", {"task": "reach"}, ("task",), {"tasks"}),
    ],
)
def test_set_takes_the_short_names_of_a_sweep(
    recipe: str, given: dict[str, str], unlock: tuple[str, ...], changed: set[str]
) -> None:
    found = choose_recipe(recipe, given, unlock)
    assert changed <= found.modified.keys()
    over = meaning(
        given,
        profile(recipe=recipe, total_steps=1),
        own_program=None,
        overrides={},
        unlock=unlock,
        arguments=(),
    )
    assert choose_recipe(over.profile.recipe or "", over.overrides, over.unlock) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": "3"}, "--seed"),
        ({"lr": "1", "actor_learning_rate": "2"}, "--set lr and --set actor_learning_rate both change"),
    ],
)
def test_set_says_what_it_cannot_take(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        choose_recipe("local-demo", given, ())
    assert said in f"{error.value.cause} {error.value.hint}"
