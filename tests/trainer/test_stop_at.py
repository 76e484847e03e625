"""`stop_at` ends a run once two evaluations in a row reach it, at the same step despite interruptions."""

from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.runs import (
    StopAt,
    events,
    newest,
    rows,
    settings_for,
    settings_of_counters,
    train,
    train_on_counters,
)
from trainer.errors import UsageError
from trainer.evaluation.background import Finished
from trainer.evaluation.result import Evaluation
from trainer.loops.evaluations import Evaluations
from trainer.seeds.together import train_seeds

pytestmark = pytest.mark.usefixtures("warm_processes")
ON_POLICY = ("--total-steps", "400", "--num-envs", "4", "--eval-every", "16", "--eval-episodes", "1")
ARGV = ("--total-steps", "400", "--num-envs", "4", "--eval-every", "40", "--eval-episodes", "1")


def levels(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """Gives the evaluations these levels, by the step, and all later ones the last."""

    def recorded(self: Evaluations, finished: list[Finished]) -> None:
        as_played(self, finished)
        if finished:
            self.level = values[min(finished[-1].step // 40, len(values)) - 1]

    as_played = Evaluations._record
    monkeypatch.setattr(Evaluations, "_record", recorded)


def test_one_evaluation_is_not_enough(tmp_path, monkeypatch):
    levels(monkeypatch, 1.0, 0.0, 0.5, 0.4, 0.5, 0.6, 1.0)
    settings = settings_of_counters(tmp_path, *ARGV, "--stop-at", "0.5")
    assert train_on_counters(settings).code == 0
    assert newest(settings)["state"]["progress"]["step"] == 240
    assert events(tmp_path)[-2] == "two evaluations in a row reached 0.5: training is over"
    assert [row["step"] for row in rows(tmp_path, "eval")] == [40, 80, 120, 160, 200, 240]


@pytest.mark.slow
def test_a_level_that_is_not_reached_changes_nothing(tmp_path):
    plain, limited = (
        settings_of_counters(tmp_path / "a", *ARGV),
        settings_of_counters(tmp_path / "b", *ARGV, "--stop-at", "2"),
    )
    for settings in (plain, limited):
        train_on_counters(settings)
    assert events(plain.run_dir)[-1] == events(limited.run_dir)[-1]
    assert "have the sha256" in events(plain.run_dir)[-1]


@pytest.mark.slow
def test_an_interrupted_run_ends_at_the_same_step_with_the_same_parameters(tmp_path, monkeypatch):
    levels(monkeypatch, 0.0, 1.0)
    whole = settings_of_counters(tmp_path / "whole", *ARGV, "--stop-at", "1")
    train_on_counters(whole)
    assert newest(whole)["state"]["progress"]["step"] == 120
    for looks in (5, 11, 13, 25, 31, 40):  # while it steps, and while it waits for an evaluation
        broken = settings_of_counters(tmp_path / str(looks), *ARGV, "--stop-at", "1")
        code = train_on_counters(broken, stop=StopAt(looks)).code
        assert code in (0, 85)
        if code:
            assert train_on_counters(replace(broken, attempt=1), resume=True, seed=99).code == 0
        assert newest(broken)["state"]["progress"]["step"] == 120
        assert events(broken.run_dir)[-1] == events(whole.run_dir)[-1]


@pytest.mark.slow
def test_a_run_that_has_learnt_enough_goes_on_towards_another_aim(tmp_path):
    settings = settings_of_counters(tmp_path, *ARGV, "--stop-at", "0")
    assert train_on_counters(settings).code == 0
    assert newest(settings)["state"]["progress"]["step"] == 80
    for attempt, (aim, end) in enumerate([({}, 80), ({"total_steps": 600}, 160), ({"stop_at": 2.0}, 400)], 1):
        assert train_on_counters(replace(settings, attempt=attempt, **aim), resume=True).code == 0
        assert newest(settings)["state"]["progress"]["step"] == end


@pytest.mark.slow
def test_of_one_rollouts_policy_one_evaluation_counts(tmp_path):
    settings = settings_for(tmp_path, "ppo", *ON_POLICY, "--stop-at", "-1000")
    assert train(settings).code == 0
    assert [row["step"] for row in rows(tmp_path, "eval")] == [16, 32, 48, 64]
    (said,) = (row for row in rows(tmp_path, "event") if "two evaluations in a row" in row["message"])
    assert said["step"] == 64  # after the first rollout has been learnt from


def test_several_runs_in_a_process_have_no_such_end(tmp_path):
    runs = [settings_of_counters(tmp_path / name, *ARGV, "--stop-at", "1") for name in "ab"]
    with pytest.raises(UsageError, match="--stop-at ends one run"):
        train_seeds(runs)


def test_a_level_without_evaluations_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--stop-at needs evaluations"):
        settings_of_counters(tmp_path, "--stop-at", "1")
    with pytest.raises(UsageError, match="'nan' is not a number"):
        settings_of_counters(tmp_path, *ARGV, "--stop-at", "nan")


def test_the_level_is_success_or_else_the_return():
    played = Evaluation(
        ("a", "b"),
        np.zeros(2, np.int32),
        np.array([[True, False], [True, True]]),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.ones((2, 2), np.int64),
    )
    assert played.level == 0.75
    assert replace(played, success=None).level == 2.5
