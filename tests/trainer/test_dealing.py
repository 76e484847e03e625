import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from trainer.envs.costs import STEP_COSTS
from trainer.envs.dealing import dealt

costs_and_workers = st.lists(st.floats(1, 100), min_size=1, max_size=60).flatmap(
    lambda costs: st.tuples(st.just(costs), st.integers(1, len(costs)))
)


@given(costs_and_workers)
def test_every_environment_has_one_worker_and_every_worker_has_one(given_):
    costs, workers = given_
    shares = dealt(costs, workers)
    assert len(shares) == workers
    assert sorted(env for share in shares for env in share) == list(range(len(costs)))
    assert all(share and share == sorted(share) for share in shares)


@given(costs_and_workers)
def test_sums_are_even_up_to_one_environment(given_):
    costs, workers = given_
    sums = [sum(costs[env] for env in share) for share in dealt(costs, workers)]
    assert max(sums) - min(sums) <= max(costs) * (1 + 1e-9)


def test_the_longest_sum_is_near_the_best_possible():
    costs = [75, 135, 138, 96, 79, 88, 121, 134, 94, 91]
    best = min(
        max(sum(part), sum(costs) - sum(part))
        for size in range(11)
        for part in itertools.combinations(costs, size)
    )
    longest = max(sum(costs[env] for env in share) for share in dealt(costs, 2))
    assert longest <= 1.02 * best


def test_equal_costs_are_dealt_in_turn():
    assert dealt([1.0] * 5, 2) == [[0, 2, 4], [1, 3]]


def test_the_order_of_equal_sums_is_the_same_each_time():
    costs = [3.0, 1.0, 2.0, 2.0, 1.0, 3.0]
    assert dealt(costs, 3) == dealt(costs, 3) == [[0, 1], [4, 5], [2, 3]]


def test_every_task_has_a_cost():
    assert STEP_COSTS.keys() == ALL_V3_ENVIRONMENTS.keys()


@pytest.mark.parametrize("workers", [2, 3, 10])
def test_shares_of_mt50_are_even(workers):
    costs = list(STEP_COSTS.values())
    sums = [sum(costs[env] for env in share) for share in dealt(costs, workers)]
    assert max(sums) < 1.1 * sum(costs) / workers
