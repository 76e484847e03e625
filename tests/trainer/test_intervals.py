"""Intervals against published values, and against how often they hold the truth."""

import numpy as np
import pytest

from trainer.evaluation.result import wilson, wilson_of_mean


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(successes, trials, low, high):
    """Table I, method 3, of Newcombe 1998, Statistics in Medicine 17:857-872."""
    found = wilson(np.array([successes / trials]), trials)
    assert [float(bound[0]) for bound in found] == pytest.approx([low, high], abs=6e-5)


@pytest.mark.parametrize("trials", [1, 2, 10, 50])
def test_the_rate_lies_in_its_interval_and_the_interval_in_0_to_1(trials):
    rates = np.arange(trials + 1) / trials
    low, high = wilson(rates, trials)
    assert (low >= 0).all()
    assert (low <= rates).all()
    assert (rates <= high).all()
    assert (high <= 1).all()
    assert (high - low > 0).all()


def test_the_interval_of_a_single_task_is_its_own():
    low, high = wilson(np.array([0.7]), 10)
    assert wilson_of_mean(np.array([0.7]), 10) == pytest.approx((low[0], high[0]))


def test_tasks_of_one_rate_count_as_one_sample():
    low, high = wilson(np.array([0.7]), 40)
    assert wilson_of_mean(np.full(4, 0.7), 10) == pytest.approx((low[0], high[0]))
    # also where all that was tried was solved, which no bootstrap could tell from certainty
    low, high = wilson(np.array([1.0]), 500)
    assert wilson_of_mean(np.ones(10), 50) == pytest.approx((low[0], high[0]))
    assert wilson_of_mean(np.ones(10), 50)[0] < 0.993


def test_easy_and_hard_tasks_are_no_uncertainty():
    apart = wilson_of_mean(np.array([0.0, 0.0, 1.0, 1.0]), 50)
    alike = wilson_of_mean(np.full(4, 0.5), 50)
    assert apart[1] - apart[0] < 0.3 * (alike[1] - alike[0])


@pytest.mark.slow
@pytest.mark.parametrize("trials", [10, 50])
@pytest.mark.parametrize(
    "truth",
    [np.full(10, 0.5), np.full(10, 0.99), np.linspace(0.02, 0.98, 10), np.array([0.995] * 9 + [0.5])],
    ids=["half", "nearly all", "spread", "one behind"],
)
def test_the_interval_of_the_mean_holds_the_truth_as_often_as_it_says(truth, trials):
    rng = np.random.default_rng(3)
    found = [wilson_of_mean(rates, trials) for rates in rng.binomial(trials, truth, (2000, 10)) / trials]
    held = np.mean([low <= truth.mean() <= high for low, high in found])
    # 0.95 less what the steps of counts cost, and what 2000 draws may miss it by
    assert 0.915 <= held <= 0.995
