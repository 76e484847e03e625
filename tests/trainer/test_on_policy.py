"""The on-policy loop, on Gymnasium's own environments and on some that are learnt within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.runs import StopAt, events, newest, rows, run, settings_for, train
from trainer.checkpoint.model import digest, load_model
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("warm_processes")

LOGGED = ("return/CartPole-v1", "loss/policy", "kl", "explained_variance", "learning_rate", "updates_skipped")
STANDARDISED = {"normalize_observations": "true", "normalize_rewards": "true"}


def learnt(settings: TrainSettings) -> str:
    return digest(newest(settings)["model"]["learner"])


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(17,), (8,), (3, 20, 15)], ids=["within", "between", "thrice"])
@pytest.mark.parametrize("recipe", ["ppo", "a2c"])
def test_an_interrupted_run_goes_on_to_the_bit(tmp_path: Path, recipe: str, stops: tuple[int, ...]) -> None:
    argv, values = ("--total-steps", "384", "--num-envs", "8", "--log-every", "16"), STANDARDISED
    whole = settings_for(tmp_path / "whole", recipe, *argv, **values)
    assert train(whole).code == 0
    parts = settings_for(tmp_path / "parts", recipe, *argv, **values)
    for attempt, stop in enumerate(stops):
        assert train(parts, resume=attempt > 0, stop=StopAt(stop), seed=attempt).code == 85
    assert train(parts, resume=True, seed=99).code == 0
    assert learnt(parts) == learnt(whole)
    found, expected = (
        [{name: row.get(name) for name in LOGGED} for row in rows(tmp_path / part, "train")]
        for part in ("parts", "whole")
    )
    assert found == expected


@pytest.mark.slow
def test_with_other_environments_a_new_rollout_begins_and_the_run_says_so(tmp_path: Path) -> None:
    argv = ("--total-steps", "512")
    train(settings_for(tmp_path, "ppo", *argv, "--num-envs", "8"), stop=StopAt(10))
    settings = settings_for(tmp_path, "ppo", *argv, "--num-envs", "4")
    assert train(settings, resume=True).code == 0
    said = "the checkpoint has 8 environments, this run has 4: new episodes are started"
    assert said in events(tmp_path)


@pytest.mark.slow
def test_what_is_recorded(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "ppo", "--total-steps", "640", "--log-every", "320", **STANDARDISED)
    train(settings)
    last = rows(tmp_path, "train")[-1]
    assert last["return/CartPole-v1"] == last["length/CartPole-v1"]  # each step pays 1
    assert last["updates"] == 80
    assert {
        "loss/policy",
        "loss/value",
        "entropy",
        "kl",
        "clip_fraction",
        "explained_variance",
    } <= last.keys()
    assert last["learning_rate"] == pytest.approx(3e-4)
    model = load_model(tmp_path)
    assert model.policy.moments.count == 640
    assert "reward_moments" in torch.load(model.path, weights_only=True)["learner"]


def test_evaluations_are_played_with_frozen_statistics(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, "ppo", "--total-steps", "128", "--eval-every", "64", "--eval-episodes", "3", **STANDARDISED
    )
    train(settings)
    found = rows(tmp_path, "eval")
    assert [row["step"] for row in found] == [64, 128]
    assert all(1 <= row["return/CartPole-v1"] <= 500 for row in found)


@pytest.mark.slow
def test_rewards_that_are_not_finite_end_with_a_word(tmp_path: Path) -> None:
    from trainer.errors import DivergedError

    settings = settings_for(tmp_path, "ppo", "--total-steps", "1280", "--log-every", "64", learning_rate="1")
    factory = GymnasiumFactory("tests.trainer.echoes:Broken-v0", actions="clipped", seed=0)
    with pytest.raises(DivergedError, match="updates in a row"):
        run(settings, factory)


LEARNT = {
    ("ppo", "tests.trainer.echoes:EchoChoice-v0"): (4096, 9.5),
    ("ppo", "tests.trainer.echoes:Echo-v0"): (12_288, 8.5),
    ("ppo", "tests.trainer.envs_for_tests:Levers-v0"): (8192, 15.0),
    ("a2c", "tests.trainer.echoes:EchoChoice-v0"): (6000, 9.5),
}


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "environment"), LEARNT, ids=lambda value: value.rpartition(":")[2])
def test_what_is_shown_is_learnt(tmp_path: Path, recipe: str, environment: str) -> None:
    steps, wanted = LEARNT[recipe, environment]
    values = {"environment": environment, "gamma": "0.5", "learning_rate": "3e-3"}
    if recipe == "ppo":
        values |= {"rollout_size": "512", "batch_size": "128", "epochs": "10"}
        if environment.endswith("Echo-v0"):
            values |= {"initial_log_std": "-1"}
    argv = ("--total-steps", str(steps), "--log-every", str(steps // 8))
    settings = settings_for(tmp_path, recipe, *argv, **values)
    train(settings)
    assert rows(tmp_path, "train")[-1][f"return/{environment}"] >= wanted
