"""Intervals against published values and against their own definition."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.report.statistics import iqm, iqm_interval, student, wilson
from tests.benchmarks.coverage import RECORDED, covered, table, whole_seeds, within_tasks
from trainer.recipe.quantiles import student_quantile


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
    assert 0 <= interval.low <= rate + 1e-12
    assert rate - 1e-12 <= interval.high <= 1
    assert interval.high - interval.low > 0


def test_nothing_known_is_no_interval() -> None:
    assert wilson(0.5, 0) is None
    assert student([0.5]) is None
    assert student([]) is None
    assert student([0.5, 0.5, 0.5]) is None, "their spread is unknown, not zero"
    assert iqm_interval([[0.1, 0.2]]) is None
    assert iqm_interval([[0.1, 0.2], [0.1, 0.2]]) is None
    assert iqm_interval([]) is None


def test_student_as_by_hand() -> None:
    # mean 0.8, standard deviation 0.1, t(0.975, 2) = 4.303
    assert student([0.7, 0.8, 0.9]) == pytest.approx((0.8 - 0.24843, 0.8 + 0.24843), abs=1e-4)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062047), (2, 4.3026527), (3, 3.1824463), (4, 2.7764451), (30, 2.0422725), (120, 1.9799304)],
)
def test_t_quantiles(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=1e-7)


def test_the_t_of_one_degree_is_cauchys_and_of_many_nearly_normal() -> None:
    assert student_quantile(1, 0.5) == pytest.approx(1.0)
    assert student_quantile(10**5) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=1e-4)


def test_iqm() -> None:
    assert iqm([0.0, 0.5, 0.6, 1.0]) == pytest.approx(0.55)
    assert iqm([0.0, 0.2, 0.4, 0.6, 9.0]) == pytest.approx(0.4)
    assert iqm([0.3]) == 0.3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_iqm_lies_within_the_middle(values: list[float]) -> None:
    assert min(values) - 1e-9 <= iqm(values) <= max(values) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("effect", [0.0, 0.5, 1.0])
def test_the_interval_holds_the_truth_as_often_as_it_says_whatever_a_seed_does_to_all_tasks(
    effect: float,
) -> None:
    assert 0.88 <= covered(whole_seeds, tasks=10, seeds=10, effect=effect, trials=200) <= 0.97


@pytest.mark.slow
def test_seeds_drawn_for_each_task_by_itself_would_be_too_narrow() -> None:
    assert covered(within_tasks, tasks=10, seeds=10, effect=1.0, trials=100) < 0.75


def test_the_recorded_coverage_stands_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    assert table(RECORDED) in page


def test_the_bootstrap_can_be_repeated() -> None:
    scores = [[0.1, 0.3], [0.4, 0.3], [0.9, 0.8]]
    interval = iqm_interval(scores)
    assert interval == iqm_interval(scores)
    assert interval.low <= iqm([score for seeds in scores for score in seeds]) <= interval.high
    assert interval.low < statistics.fmean([0.1, 0.4, 0.9, 0.3, 0.3, 0.8]) < interval.high
