import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from trainer.envs.metaworld import STEP_COSTS, MetaworldFactory
from trainer.envs.official import model_file, official_class
from trainer.envs.slots import assigned_shares

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
    costs, _, workers = hand
    shares = assigned_shares(*hand)
    assert len(shares) == workers
    assert sorted(env for share in shares for env in share) == list(range(len(costs)))
    assert all(share and share == sorted(share) for share in shares)


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
