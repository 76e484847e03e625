import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.loops.attempt import crossed
from trainer.loops.off_policy import earn
from trainer.loops.state import RunCounters
from trainer.recipe.processes import helper_processes, quick, worker_processes


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
