"""Who a process is among those of its run, what they share, and at which steps what is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer import recipe
from trainer import recipe as recipes
from trainer.errors import UsageError
from trainer.loops.attempt import crossed
from trainer.loops.off_policy import earn
from trainer.loops.state import RunCounters
from trainer.ranks.place import ALONE, RankPlace, place_from
from trainer.recipe import RecipeError, check_shares, shared_envs
from trainer.recipe.processes import helper_processes, quick, worker_processes
from trainer.settings import read_settings

MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
TORCHRUN = MEETING | {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SRUN = MEETING | {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}


def test_nobody_says_anything():
    assert place_from({}, None) == place_from(TORCHRUN, 1) == place_from(SRUN, 1) == ALONE


def test_torchrun_says_it():
    assert place_from(TORCHRUN, None) == place_from(TORCHRUN, 4) == RankPlace(3, 4, 1, 2)


def test_srun_says_it_and_has_bound_each_task():
    assert place_from(SRUN, None) == RankPlace(5, 8, 1, 1, bound=True)


def test_a_batch_script_is_one_process_whatever_it_was_given():
    assert place_from({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None) == ALONE
    assert place_from({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None) == ALONE


def test_ranks_asked_for_are_to_be_started():
    assert place_from({}, 2) == RankPlace(0, 2, 0, 2, started=False)


def test_a_process_on_each_node_starts_its_share_of_more_ranks():
    second = MEETING | {"RANK": "1", "WORLD_SIZE": "2", "NNODES": "2", "NODE_RANK": "1"}
    assert place_from(second, 2) == RankPlace(1, 2, 1, 2)
    assert place_from(second, 6) == RankPlace(3, 6, 0, 3, started=False)
    with pytest.raises(UsageError, match="--ranks 5, but 2 processes"):
        place_from(second, 5)


def test_a_contradiction_is_one_line():
    with pytest.raises(UsageError, match="--ranks 2, but 4 processes have been started"):
        place_from(TORCHRUN, 2)


@pytest.mark.parametrize("environ", [TORCHRUN, SRUN])
def test_processes_that_could_not_meet_are_told_how(environ):
    with pytest.raises(UsageError, match="together, and MASTER_ADDR and MASTER_PORT not said") as caught:
        place_from({name: value for name, value in environ.items() if name not in MEETING}, None)
    assert "--ranks 1" in caught.value.hint


def read(*argv: str, **environ: str):
    return read_settings(["--recipe", "guide-mt10", *argv], environ)


def test_what_the_command_line_says_is_of_all_ranks():
    settings = read("--num-envs", "32", "--workers", "8", **TORCHRUN)
    assert (settings.num_envs, settings.own_envs, settings.own_workers) == (32, 8, 2)
    assert settings.own(settings.recipe.values["batch_size"]) == 128
    assert read("--workers", "0", "--num-envs", "32", **TORCHRUN).own_workers == 0
    assert read(**TORCHRUN).num_envs == 12  # one a task, and what four can share


def test_a_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(RecipeError, match="batch_size = 514 cannot be shared by 4 ranks; 512 or 516 can"):
        read("--set", "batch_size=514", "--unlock", "batch_size", **TORCHRUN)


def test_what_divides_is_shared():
    check_shares(recipes.load("guide-mt10"), 32, 2)
    check_shares(recipes.load("ppo"), None, 2)
    check_shares(recipes.load("a2c"), 6, 3)
    assert [shared_envs(10, ranks) for ranks in (1, 2, 3, 4)] == [10, 10, 12, 12]


@pytest.mark.parametrize(
    ("name", "num_envs", "ranks", "message"),
    [
        ("ppo", 9, 2, "9 environments cannot be shared by 2 ranks; 8 or 10 can"),
        ("ppo", 8, 128, "8 environments cannot be shared by 128 ranks; 128 can"),
        (
            "ppo",
            128,
            128,
            "recipe ppo: batch_size = 64 cannot be shared by 128 ranks; 128 can, with --unlock",
        ),
        ("strong-mt10", 30, 3, "batch_size = 1280 cannot be shared by 3 ranks; 1278 or 1281 can"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_nearest_that_do(name, num_envs, ranks, message):
    with pytest.raises(RecipeError, match=message):
        check_shares(recipes.load(name), num_envs, ranks)


@given(
    steps_per_update=st.one_of(st.integers(1, 64), st.sampled_from([0.5, 2.5, 12.0, 16.0])),
    num_envs=st.integers(1, 100),
    vector_steps=st.integers(1, 300),
)
def test_updates_follow_the_steps_not_the_environments(steps_per_update, num_envs, vector_steps):
    counters = RunCounters(0)
    updates = sum(earn(counters, num_envs, steps_per_update) for _ in range(vector_steps))
    assert updates == int(num_envs * vector_steps // steps_per_update)


@given(cut=st.integers(0, 100))
def test_credit_is_carried_over_an_interruption(cut):
    first = RunCounters(0)
    updates = sum(earn(first, 3, 10) for _ in range(cut))
    second = RunCounters(**first.as_dict())
    updates += sum(earn(second, 3, 10) for _ in range(100 - cut))
    assert updates == 30


@given(interval=st.integers(1, 50), num_envs=st.integers(1, 70), vector_steps=st.integers(1, 100))
def test_what_is_due_comes_once_for_each_multiple_passed(interval, num_envs, vector_steps):
    total = num_envs * vector_steps
    times = sum(crossed(interval, step, step + num_envs) for step in range(0, total, num_envs))
    assert times == (total // interval if num_envs <= interval else vector_steps)


def test_an_interval_of_zero_is_never_due():
    assert not crossed(0, 0, 1_000_000)


@pytest.mark.parametrize(
    ("num_envs", "processors", "workers"),
    [(16, 2, 1), (10, 16, 10), (32, 16, 11), (48, 16, 12), (1, 64, 1), (10, 1, 0), (10, 4, 3)],
)
def test_workers_leave_the_learner_a_processor_and_none_is_wasted(num_envs, processors, workers):
    assert worker_processes(num_envs, processors) == workers


@pytest.mark.parametrize(
    ("num_envs", "processors", "workers"), [(16, 2, 1), (8, 16, 7), (32, 15, 10), (1, 64, 0), (8, 1, 0)]
)
def test_a_learner_that_helps_has_as_large_a_share_as_its_workers(num_envs, processors, workers):
    assert helper_processes(num_envs, processors) == workers
    assert -(-num_envs // (workers + 1)) == -(-num_envs // processors)


def test_what_is_over_before_a_process_is_awake_is_quick():
    assert quick(8, 8e-6)
    assert not quick(8, 30e-6)
    assert not quick(100, 8e-6)


def test_a_batch_divides_the_rollout() -> None:
    values = {"rollout_size": 4096, "batch_size": 1000}
    with pytest.raises(RecipeError, match=r"must divide rollout_size = 4096, .* take 512 or 1024, or auto"):
        recipe.batches("mine", values, 1)
    assert recipe.batches("mine", {"rollout_size": 4096, "batch_size": 512}, 16) == recipe.Batches(
        256, 4096, 512
    )
    assert recipe.batches("mine", {"rollout_size": 40}, 16) == recipe.Batches(3, 48, 48)
    whole_episodes = {"rollout_size": 100_000, "episode_steps": 500}
    assert recipe.batches("mine", whole_episodes, 32) == recipe.Batches(3500, 112_000, 112_000)
    with pytest.raises(
        RecipeError, match=r"rollout of 3500 steps x 32 = 112000, .* take 2800 or 3200, or auto"
    ):
        recipe.batches("mine", whole_episodes | {"batch_size": 3125}, 32)


@pytest.mark.parametrize(
    ("rollout", "envs", "chosen"),
    [(4096, 16, 1024), (4096, 10, 1025), (65536, 8, 4096), (3, 1, 1), (13, 1, 1)],
)
def test_auto_takes_the_largest_divisor_that_leaves_four_batches(
    rollout: int, envs: int, chosen: int
) -> None:
    cuts = recipe.batches("mine", {"rollout_size": rollout, "batch_size": "auto"}, envs)
    assert cuts.batch_size == chosen
    assert cuts.rollout % chosen == 0
