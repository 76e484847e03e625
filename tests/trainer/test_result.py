import numpy as np
import pytest

from trainer.evaluation.result import Evaluation, student, table, wilson, wilson_of_mean


def evaluation(goals, *successes: int) -> Evaluation:
    """One task for each number of episodes solved; a solved episode returns 10, another 20."""
    success = np.array([[episode < solved for episode in range(len(goals))] for solved in successes])
    tasks = ("red", "green", "blue-v3")[: len(successes)]
    returns = np.where(success, 10.0, 20.0)
    return Evaluation(tasks, np.array(goals, np.int32), success, returns, np.full(success.shape, 7))


def test_metrics_have_the_names_of_the_run_directory():
    metrics = evaluation(range(20), 0, 5, 20).metrics()
    low, high = wilson(np.array([0.0, 0.25, 1.0]), 20)
    mean_low, mean_high = wilson_of_mean(np.array([0.0, 0.25, 1.0]), 20)
    expected = {"success/mean": pytest.approx(25 / 60), "return/mean": pytest.approx((20 + 17.5 + 10) / 3)}
    expected |= {"success_low/mean": mean_low, "success_high/mean": mean_high, "length/mean": 7.0}
    for number, task in enumerate(("red", "green", "blue-v3")):
        expected |= {
            f"success/{task}": (0.0, 0.25, 1.0)[number],
            f"return/{task}": (20.0, 17.5, 10.0)[number],
        }
        expected |= {f"success_low/{task}": low[number], f"success_high/{task}": high[number]}
        expected |= {f"length/{task}": 7.0}
    assert metrics == expected | {"episodes": 20}
    assert all(type(value) is float for name, value in metrics.items() if name != "episodes")


def test_a_goal_played_again_makes_nothing_more_certain():
    once = evaluation(range(5), 5, 5).metrics()
    twice = evaluation([*range(5), *range(5)], 10, 10).metrics()
    assert twice["success_low/red"] == once["success_low/red"]
    assert twice["success_low/mean"] == once["success_low/mean"]
    assert twice["episodes"] == 10


def test_the_table_says_it_all_in_aligned_rows():
    assert table(evaluation(range(50), 50, 25, 0)).splitlines() == [
        "task     success    95% interval  return",
        "red       100.0%  92.9% - 100.0%    10.0",
        "green      50.0%   36.6% - 63.4%    15.0",
        "blue-v3     0.0%     0.0% - 7.1%    20.0",
        "mean       50.0%   45.1% - 54.9%    15.0",
    ]


def scored(*returns: float) -> Evaluation:
    """An environment that knows no success."""
    lengths = np.arange(len(returns))[None] + 3
    goals = np.arange(len(returns), dtype=np.int32)
    return Evaluation(("Pole-v1",), goals, None, np.array([returns]), lengths)


def test_where_success_means_nothing_returns_and_lengths_are_told():
    returns = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    low, high = student(returns)
    found = {"return": 3.0, "length": 5.0, "return_low": low, "return_high": high}
    expected = {f"{name}/{of}": value for name, value in found.items() for of in ("mean", "Pole-v1")}
    assert scored(*returns).metrics() == expected | {"episodes": 5}
    assert table(scored(*returns)).splitlines() == [
        "task       return       95% interval  steps",
        "Pole-v1       3.0         1.0 .. 5.0      5",
    ]
    assert "return_low/mean" not in scored(1.0).metrics()  # one value has no deviation
    assert table(scored(-1234.5)).splitlines()[1] == "Pole-v1   -1234.5                         3"


@pytest.mark.parametrize(("count", "quantile"), [(5, 2.7764), (10, 2.2622), (50, 2.0096)])
def test_the_interval_of_a_mean_is_students(count, quantile):
    values = np.random.default_rng(count).normal(size=count)
    low, high = student(values)
    assert (high - low) / 2 == pytest.approx(quantile * values.std(ddof=1) / count**0.5, rel=0.01)
    assert (low + high) / 2 == pytest.approx(values.mean())


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
