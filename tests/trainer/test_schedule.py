import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from trainer.envs.metaworld import STEP_COSTS, MetaworldFactory
from trainer.envs.official import model_file, official_class
from trainer.envs.schedule import Schedule, WorkerCommand
from trainer.envs.slots import assigned_shares


def steps_per_task(num_envs, num_tasks, episode_steps, vector_steps, **options) -> np.ndarray:
    schedule = Schedule(num_envs, num_tasks, episode_steps, 50, np.random.default_rng(0), **options)
    steps = np.zeros(num_tasks, np.int64)
    for _ in range(vector_steps):
        np.add.at(steps, schedule.tasks, 1)
        schedule.advance()
    return steps


@pytest.mark.slow
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
    # the moving environments are less than two episodes apart, however long it runs
    assert steps.max() - steps.min() <= 2 * episode_steps


@pytest.mark.slow
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
    assert (first.command == WorkerCommand.RESET).all()
    tasks = schedule.tasks
    fixed = num_envs - num_envs % num_tasks
    ends = [[] for _ in range(num_envs)]
    for step in range(1, 4 * episode_steps + 1):
        before = schedule.tasks
        orders = schedule.advance()
        ended = orders.command == WorkerCommand.STEP_THEN_RESET
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
        for env in np.flatnonzero(schedule.advance().command == WorkerCommand.STEP_THEN_RESET):
            first_end.setdefault(int(env), step)
    assert [first_end[env] for env in range(8)] == [100, 100, 75, 75, 50, 50, 25, 25]


def test_goals_follow_the_generator_and_cover_the_list():
    def goals(seed):
        schedule = Schedule(5, 5, 1, 50, np.random.default_rng(seed))
        return np.concatenate([schedule.advance().goal for _ in range(100)])

    assert (goals(0) == goals(0)).all()
    assert (goals(0) != goals(1)).any()
    assert set(goals(0)) == set(range(50))


@pytest.mark.slow
@given(num_envs=st.integers(1, 40), num_tasks=st.integers(1, 12), stagger=st.booleans())
def test_the_environments_left_over_take_the_tasks_in_turn(num_envs, num_tasks, stagger):
    schedule = Schedule(num_envs, num_tasks, 3, 7, np.random.default_rng(0), stagger=stagger)
    spare = num_envs % num_tasks
    moving = slice(num_envs - spare, None)
    played = []
    for _ in range(4 * num_tasks):
        assert len(set(schedule.tasks[moving])) == spare  # never two at the same task
        assert len(set(schedule.remaining[moving])) <= 1  # all in the same phase
        played.extend(schedule.tasks[moving])
        while schedule.advance().command[-1] != WorkerCommand.STEP_THEN_RESET:
            pass
    assert played == [turn % num_tasks for turn in range(len(played))]


@pytest.mark.parametrize("stagger", [False, True])
def test_remaining_counts_the_steps_to_the_end_of_the_episode(stagger):
    schedule = Schedule(7, 3, 10, 50, np.random.default_rng(0), stagger=stagger)
    assert schedule.remaining.tolist() == ([10, 10, 10, 7, 7, 7, 4] if stagger else [10] * 7)
    for _ in range(25):
        last = schedule.remaining == 1
        schedule.remaining[:] = 0  # a copy
        assert ((schedule.advance().command == WorkerCommand.STEP_THEN_RESET) == last).all()


@pytest.mark.slow
@given(
    num_envs=st.integers(1, 40),
    num_tasks=st.integers(1, 12),
    before=st.integers(0, 50),
    stagger=st.booleans(),
)
def test_a_schedule_goes_on_as_it_would_have(num_envs, num_tasks, before, stagger):
    rng = np.random.default_rng(3)
    schedule = Schedule(num_envs, num_tasks, 8, 50, rng, stagger=stagger)
    schedule.first()
    for _ in range(before):
        schedule.advance()
    copy = np.random.default_rng()
    copy.bit_generator.state = json.loads(json.dumps(rng.bit_generator.state))
    state = json.loads(json.dumps(schedule.state()))
    resumed = Schedule(num_envs, num_tasks, 8, 50, copy, stagger=stagger, state=state)
    for _ in range(20):
        assert (resumed.remaining == schedule.remaining).all()
        for found, expected in zip(resumed.advance(), schedule.advance(), strict=True):
            assert found.dtype == expected.dtype
            assert (found == expected).all()


TASKS = list(STEP_COSTS)
MODELS = [MetaworldFactory(tuple(TASKS)).model(task) for task in range(len(TASKS))]


@st.composite
def hands(draw):
    costs = draw(st.lists(st.floats(1, 100), min_size=1, max_size=60))
    models = draw(st.lists(st.integers(0, 8), min_size=len(costs), max_size=len(costs)))
    return costs, models, draw(st.integers(1, len(costs)))


@pytest.mark.slow
@given(hands())
def test_every_environment_has_one_worker_and_every_worker_has_one(hand):
    costs, models, workers = hand
    shares = assigned_shares(*hand)
    assert len(shares) == workers
    assert sorted(env for share in shares for env in share) == list(range(len(costs)))
    for share in shares:
        rows = [[*row] for _, row in itertools.groupby(share, models.__getitem__)]
        assert 0 < len(rows) == len({models[env] for env in share})
        assert all(row == sorted(row) for row in rows)


def test_no_worker_goes_without_for_the_sake_of_a_model():
    assert assigned_shares([100.0, 1.0, 1.0], "aaa", 3) == [[0], [1], [2]]


def sums_of(costs, shares):
    return [sum(costs[env] for env in share) for share in shares]


@pytest.mark.slow
@given(hands())
def test_sums_are_even_up_to_one_environment_and_the_slack(hand):
    costs, _, workers = hand
    sums = sums_of(costs, assigned_shares(*hand))
    assert max(sums) - min(sums) <= (max(costs) + 0.05 * sum(costs) / workers) * (1 + 1e-9)


def test_the_longest_sum_is_near_the_best_possible():
    costs = [75, 135, 138, 96, 79, 88, 121, 134, 94, 91]
    best = min(
        max(sum(part), sum(costs) - sum(part))
        for size in range(11)
        for part in itertools.combinations(costs, size)
    )
    assert max(sums_of(costs, assigned_shares(costs, range(10), 2))) <= 1.02 * best


def test_environments_of_one_model_stay_together_where_that_costs_little():
    assert assigned_shares([100.0, 100.0, 1.0, 1.0], "abba", 2) == [[0, 3], [1, 2]]
    assert assigned_shares([100.0, 100.0, 50.0, 50.0], "abcc", 2) == [[0, 2], [1, 3]]


def test_the_order_of_equal_sums_is_the_same_each_time():
    costs = [3.0, 1.0, 2.0, 2.0, 1.0, 3.0]
    assert (
        assigned_shares(costs, range(6), 3) == assigned_shares(costs, range(6), 3) == [[0, 1], [4, 5], [2, 3]]
    )


def test_every_task_has_a_cost():
    assert STEP_COSTS.keys() == ALL_V3_ENVIRONMENTS.keys()


@pytest.mark.slow
def test_the_model_is_what_an_environment_reads():
    for task in ("faucet-open-v3", "faucet-close-v3", "reach-v3"):
        assert model_file(task) == official_class(task)().fullpath


@pytest.mark.parametrize("workers", [2, 3, 10])
def test_shares_of_mt50_are_even_and_few_models_are_read_twice(workers):
    costs = [STEP_COSTS[task] for task in TASKS]
    shares = assigned_shares(costs, MODELS, workers)
    assert max(sums_of(costs, shares)) < 1.1 * sum(costs) / workers
    read = sum(len({MODELS[env] for env in share}) for share in shares)
    assert read < sum(
        len({MODELS[env] for env in share}) for share in assigned_shares(costs, range(50), workers)
    )
