from pathlib import Path

import pytest

from trainer import settings as settings_module
from trainer.arguments import NEWEST, train_parser
from trainer.errors import UsageError
from trainer.machine.processors import usable_processors
from trainer.recipe import RecipeError
from trainer.recipe.processes import worker_processes
from trainer.settings import read_each, read_settings


def read(*argv: str, **environ: str):
    return read_settings(["--recipe", "local-demo", *argv], environ)


def test_what_is_not_said_comes_from_the_recipe_and_the_tasks():
    settings = read("--total-steps", "50_000")
    assert settings.tasks == ("reach-v3", "drawer-close-v3", "coffee-button-v3", "handle-press-v3")
    assert settings.num_envs == 4
    assert settings.eval_episodes == settings.final_episodes == 10
    assert settings.eval_every == settings.checkpoint_every == 5000
    assert settings.log_every == 1000
    assert settings.resume is None
    assert settings.workers == worker_processes(4, usable_processors())
    assert settings.threads is None
    assert settings.run_dir.parent == Path("runs")
    assert settings.run_dir.name.startswith("local-demo-")


def test_what_is_said_counts():
    settings = read(
        *("--total-steps", "2e6", "--num-envs", "7", "--seed", "3", "--eval-every", "0"),
        *("--run-dir", "here", "--workers", "0", "--threads", "2", "--precision", "bf16"),
        *("--final-episodes", "50", "--resume", "x/step-1"),
    )
    assert (settings.total_steps, settings.num_envs, settings.seed) == (2_000_000, 7, 3)
    assert (settings.eval_every, settings.final_episodes) == (0, 50)
    assert (settings.workers, settings.threads, settings.precision) == (0, 2, "bf16")
    assert (settings.run_dir, settings.resume) == (Path("here"), Path("x/step-1"))


def test_the_environment_of_a_run_is_used():
    settings = read(CLUSTERKIT_RUN_DIR="/a/b", CLUSTERKIT_RUN_ID="mt10-1", CLUSTERKIT_ATTEMPT="2")
    assert (settings.run_dir, settings.run_id, settings.attempt) == (Path("/a/b"), "mt10-1", 2)
    assert settings.resume == NEWEST  # a later attempt goes on by itself
    assert read(CLUSTERKIT_ATTEMPT="0").resume is None
    assert read("--resume").resume == NEWEST


def test_a_recipe_value_needs_its_lock_lifted():
    with pytest.raises(RecipeError, match="--unlock tasks"):
        read("--tasks", "reach,push")
    settings = read("--tasks", "reach,push", "--set", "gamma=0.97", "--unlock", "tasks", "--unlock", "gamma")
    assert settings.tasks == ("reach-v3", "push-v3")
    assert settings.recipe.modified.keys() == {"tasks", "gamma"}
    assert settings.recipe.values["gamma"] == 0.97


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--num-env", "3"], "unknown argument '--num-env'; did you mean --num-envs"),
        (["--total-steps", "many"], "argument --total-steps: invalid whole number value: 'many'"),
        (["--num-envs", "0"], "0 is not a whole number of at least 1"),
        (["--seed", "1.5"], "1.5 is not a whole number of at least 0"),
        (["--device", "gpu"], "argument --device: invalid choice"),
        (["--set", "gamma"], "expected NAME=VALUE"),
    ],
)
def test_wrong_arguments_are_one_line(argv, message):
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert message in caught.value.cause
    assert "\n" not in caught.value.cause
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--recipe", "local-dmo"], "local-demo"),
        (["--set", "gama=1"], "gamma"),
        (["--set", "gamma=0.9", "--set", "gamma=0.8", "--unlock", "gamma"], "set twice"),
        (["--tasks", "raech", "--unlock", "tasks"], "reach-v3"),
    ],
)
def test_wrong_names_come_with_the_nearest_right_one(argv, message):
    with pytest.raises(RecipeError, match=message):
        read(*argv)


def test_a_recipe_with_rollouts_has_its_environment_for_a_task_and_makes_whole_ones():
    settings = read("--recipe", "guide-ppo-fast", "--total-steps", "5000", "--num-envs", "16")
    assert settings.tasks == ("Pendulum-v1",)
    assert settings.total_steps == 2 * 4096
    assert read("--recipe", "ppo").num_envs == 8


def test_multi_task_ppo_has_an_environment_a_task_and_whole_rollouts():
    settings = read("--recipe", "mtppo-mt10", "--total-steps", "150_000")
    assert len(settings.tasks) == settings.num_envs == 10
    assert settings.total_steps == 200_000
    assert read("--recipe", "mtppo-mt50", "--ranks", "1").num_envs == 50
    two = ("--tasks", "reach,push", "--unlock", "tasks", "--num-envs", "3")
    with pytest.raises(RecipeError, match=r"33500 steps x 3 = 100500, and 3125 does not: take 2010"):
        read("--recipe", "mtppo-mt10", *two)


def test_a_batch_that_does_not_divide_the_rollout_is_refused():
    said = r"must divide rollout of 410 steps x 10 = 4100, and 2048 does not: take 1025 or 2050, or auto"
    with pytest.raises(RecipeError, match=said):
        read("--recipe", "guide-ppo-fast", "--num-envs", "10")


@pytest.mark.parametrize("recipe", ["sac", "ppo", "local-demo"])
def test_processes_that_nobody_asked_for_are_optional(recipe):
    assert read("--recipe", recipe).workers_optional
    assert not read("--recipe", recipe, "--workers", "1").workers_optional


@pytest.mark.parametrize(
    ("recipe", "processors", "threads"),
    [
        *(("ppo", 16, 1), ("local-demo", 16, 1), ("dqn", 16, 1)),
        *(("sac", 1, 1), ("sac", 2, 2), ("sac", 16, 4), ("guide-mt10", 2, 2), ("guide-ppo-fast", 2, 2)),
    ],
)
def test_a_cpu_computes_on_as_many_threads_as_its_products_are_worth(
    monkeypatch, recipe, processors, threads
):
    monkeypatch.setattr(settings_module, "usable_processors", lambda: processors)
    settings = read("--recipe", recipe)
    assert (settings.threads_on("cpu"), settings.threads_on("cuda")) == (threads, 1)
    assert read("--recipe", recipe, "--threads", "0").threads_on("cuda") == 0


def test_ranks_on_a_machine_share_its_processors_and_the_batch(monkeypatch):
    monkeypatch.setattr(settings_module, "usable_processors", lambda: 16)
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    ranks = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", **meeting}
    assert read("--recipe", "guide-mt10", **ranks).threads_on("cpu") == 8
    assert read("--recipe", "sac", "--num-envs", "2", **ranks).threads_on("cpu") == 2


def each(*argv: str, **environ: str):
    return read_each(["--recipe", "local-demo", *argv], environ)


def test_each_seed_is_a_run_of_its_own():
    runs = each("--seeds", "1..3,7", "--run-dir", "there", WANDB_RUN_ID="w1")
    assert [(run.seed, run.run_dir, run.run_id) for run in runs] == [
        (seed, Path("there") / f"seed-{seed}", f"there-seed-{seed}") for seed in (1, 2, 3, 7)
    ]
    assert {(run.together, run.wandb_id) for run in runs} == {(4, None)}
    assert each("--seeds", "5,1")[0].seed == 5
    (one,) = each("--seed", "4", "--run-dir", "there", WANDB_RUN_ID="w1")
    assert (one.seed, one.run_dir, one.together, one.wandb_id) == (4, Path("there"), 1, "w1")
    assert each()[0].seed == 0


@pytest.mark.parametrize(("processors", "workers"), [(1, 0), (2, 1), (8, 1), (9, 2), (16, 2)])
def test_runs_of_a_process_divide_the_processors_that_the_learners_leave(monkeypatch, processors, workers):
    monkeypatch.setattr(settings_module, "usable_processors", lambda: processors)
    assert {run.workers for run in each("--seeds", "1..4")} == {workers}
    assert {run.workers for run in each("--seeds", "1..4", "--workers", "3")} == {3}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--seeds", "1..x"), "'1..x' is not a seed; write 1..8 or 1,2,5"),
        (("--seeds", "1,,2"), "'' is not a seed"),
        (("--seeds", "-1"), "-1. is not a seed"),
        (("--seeds", "4..2"), "counts backwards; write 2..4"),
        (("--seeds", "1..3,2"), "2 is listed twice"),
        (("--seeds", "1..1_000"), "not a seed"),
        (("--seeds", "1..1000"), "1,000 seeds are too many for one process; use at most 64"),
        (("--seeds", "1..2", "--seed", "3"), "exclude each other"),
        (("--seeds", "1..2", "--resume", "x/step-1"), "--resume PATH is for one run"),
        (("--seeds", "1..2", "--ranks", "2"), "2 ranks share one run"),
    ],
)
def test_seeds_that_cannot_be(argv, message):
    with pytest.raises(UsageError, match=message):
        each(*argv)


def test_what_takes_one_run_takes_no_seeds():
    with pytest.raises(UsageError, match="this is a single one"):
        read("--seeds", "1..2")


def test_the_help_breaks_no_name() -> None:
    words = train_parser().format_help().split()
    assert not [word for word in words if word.endswith("-")]
    assert "guide-mt10-conservative," in words


@pytest.mark.parametrize(("said", "threads"), [("1", 1), ("4,2", 4), ("0", None), ("many", None), ("", None)])
def test_what_openmp_was_told_is_the_most(monkeypatch, said, threads):
    monkeypatch.setattr(settings_module, "usable_processors", lambda: 16)
    wide = read("--recipe", "guide-mt10", OMP_NUM_THREADS=said)
    assert (wide.threads_on("cpu"), wide.threads_on("cuda")) == (threads or 16, 1)
    assert read("--recipe", "ppo", OMP_NUM_THREADS=said).threads_on("cpu") == 1
    assert read("--threads", "3", OMP_NUM_THREADS=said).threads_on("cpu") == 3
