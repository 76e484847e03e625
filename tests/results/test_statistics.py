"""Intervals against published values and against their own definition."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.report.statistics import _t_quantile, iqm, iqm_interval, student, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(successes: int, trials: int, low: float, high: float) -> None:
    """Table I, method 3, of Newcombe 1998, Statistics in Medicine 17:857-872."""
    assert wilson(successes / trials, trials) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_holds_the_rate_and_stays_in_range(successes: int, trials: int) -> None:
    rate = min(successes, trials) / trials
    interval = wilson(rate, trials)
    assert interval is not None
    assert 0 <= interval.low <= rate + 1e-12
    assert rate - 1e-12 <= interval.high <= 1
    assert interval.high - interval.low > 0


def test_nothing_known_is_no_interval() -> None:
    assert wilson(0.5, 0) is None
    assert student([0.5]) is None
    assert student([]) is None
    assert iqm_interval([[0.1], [0.2]]) is None


def test_student_as_by_hand() -> None:
    # mean 0.8, standard deviation 0.1, t(0.975, 2) = 4.303
    assert student([0.7, 0.8, 0.9]) == pytest.approx((0.8 - 0.24843, 0.8 + 0.24843), abs=1e-4)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.7062), (30, 2.0423), (31, 2.0395), (60, 2.0003)])
def test_t_quantiles(freedom: int, quantile: float) -> None:
    assert _t_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


def test_iqm() -> None:
    assert iqm([0.0, 0.5, 0.6, 1.0]) == pytest.approx(0.55)
    assert iqm([0.0, 0.2, 0.4, 0.6, 9.0]) == pytest.approx(0.4)
    assert iqm([0.3]) == 0.3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_iqm_lies_within_the_middle(values: list[float]) -> None:
    assert min(values) - 1e-9 <= iqm(values) <= max(values) + 1e-9


@pytest.mark.slow
def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = random.Random(5)
    covered = 0
    for trial in range(60):
        scores = [[generator.gauss(0.5, 0.1) for _ in range(10)] for _ in range(4)]
        interval = iqm_interval(scores, seed=trial)
        assert interval is not None
        covered += interval.low <= 0.5 <= interval.high
    assert 48 <= covered <= 60  # 57 expected


def test_the_bootstrap_can_be_repeated() -> None:
    scores = [[0.1, 0.4, 0.9], [0.3, 0.3, 0.8]]
    interval = iqm_interval(scores)
    assert interval == iqm_interval(scores)
    assert interval is not None
    assert interval.low <= iqm([score for seeds in scores for score in seeds]) <= interval.high
    assert interval.low < statistics.fmean([0.1, 0.4, 0.9, 0.3, 0.3, 0.8]) < interval.high
