import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.envs.schedule import Command, Schedule


def steps_per_task(num_envs, num_tasks, episode_steps, vector_steps, **options) -> np.ndarray:
    schedule = Schedule(num_envs, num_tasks, episode_steps, 50, np.random.default_rng(0), **options)
    steps = np.zeros(num_tasks, np.int64)
    for _ in range(vector_steps):
        np.add.at(steps, schedule.tasks, 1)
        schedule.advance()
    return steps


@given(
    num_envs=st.integers(1, 64),
    num_tasks=st.integers(1, 12),
    episode_steps=st.integers(1, 30),
    vector_steps=st.integers(1, 400),
    stagger=st.booleans(),
)
def test_every_task_gets_the_same_data_whatever_the_number_of_environments(
    num_envs, num_tasks, episode_steps, vector_steps, stagger
):
    steps = steps_per_task(num_envs, num_tasks, episode_steps, vector_steps, stagger=stagger)
    assert steps.sum() == num_envs * vector_steps
    # the moving environments are at most two episodes apart, however long it runs
    assert steps.max() - steps.min() <= 2 * episode_steps


@pytest.mark.parametrize("num_envs", [3, 10, 16, 32, 48])
def test_ten_tasks_are_served_equally_over_a_long_run(num_envs):
    steps = steps_per_task(num_envs, 10, 500, 50_000)
    assert steps.max() / steps.min() < 1.1
    assert steps.max() - steps.min() <= 1000


@given(
    num_envs=st.integers(1, 40),
    num_tasks=st.integers(1, 12),
    episode_steps=st.integers(1, 20),
    stagger=st.booleans(),
)
def test_episodes_have_their_length_and_only_spare_environments_move(
    num_envs, num_tasks, episode_steps, stagger
):
    schedule = Schedule(num_envs, num_tasks, episode_steps, 7, np.random.default_rng(0), stagger=stagger)
    first = schedule.first()
    assert (first.command == Command.RESET).all()
    tasks = schedule.tasks
    fixed = num_envs - num_envs % num_tasks
    ends = [[] for _ in range(num_envs)]
    for step in range(1, 4 * episode_steps + 1):
        before = schedule.tasks
        orders = schedule.advance()
        ended = orders.command == Command.STEP_THEN_RESET
        assert (schedule.tasks[~ended] == before[~ended]).all()
        assert (orders.task == schedule.tasks).all()
        assert ((orders.goal >= 0) & (orders.goal < 7)).all()
        assert (schedule.tasks[:fixed] == tasks[:fixed]).all()
        for env in np.flatnonzero(ended):
            ends[env].append(step)
    for env_ends in ends:
        assert env_ends[0] <= episode_steps
        assert (np.diff(env_ends) == episode_steps).all()


def test_the_copies_of_a_task_are_out_of_phase_when_staggered():
    schedule = Schedule(8, 2, 100, 50, np.random.default_rng(0), stagger=True)
    first_end = {}
    for step in range(1, 101):
        for env in np.flatnonzero(schedule.advance().command == Command.STEP_THEN_RESET):
            first_end.setdefault(int(env), step)
    assert [first_end[env] for env in range(8)] == [100, 100, 75, 75, 50, 50, 25, 25]


def test_goals_follow_the_generator_and_cover_the_list():
    def goals(seed):
        schedule = Schedule(5, 5, 1, 50, np.random.default_rng(seed))
        return np.concatenate([schedule.advance().goal for _ in range(100)])

    assert (goals(0) == goals(0)).all()
    assert (goals(0) != goals(1)).any()
    assert set(goals(0)) == set(range(50))


def test_the_balance_survives_a_resumption():
    # three environments over ten tasks, interrupted after every 700 steps
    moved, steps = None, np.zeros(10, np.int64)
    for _ in range(30):
        schedule = Schedule(3, 10, 500, 50, np.random.default_rng(0), moved=moved)
        for _ in range(1000):
            np.add.at(steps, schedule.tasks, 1)
            schedule.advance()
        moved = schedule.moved
    assert steps.min() > 0.7 * steps.mean()
