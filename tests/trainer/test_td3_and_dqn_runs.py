"""SAC, TD3 and DQN in the off-policy loop: interrupted and resumed to the bit, evaluated, refused in time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from tests.trainer.runs import StopAt, events, newest, replay_rows, rows, settings_for, train
from trainer import evaluate
from trainer.replay import NStepReplay

pytestmark = pytest.mark.usefixtures("warm_processes")

HERE = "tests.trainer.envs_for_tests"
SEVERAL_STEPS = {"n_step": "3", "dueling": "true", "double": "true", "target_interval": "7"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("sac", {"environment": "Pendulum-v1"}),
        ("sac", {"environment": f"{HERE}:Gates-v0"}),
        ("sac", {"environment": "InvertedPendulum-v5"}),
        ("td3", {"environment": "Pendulum-v1", "policy_delay": "3", "normalize_observations": "warmup"}),
        ("dqn", {}),
        ("dqn", SEVERAL_STEPS),
    ],
    ids=str,
)
@pytest.mark.parametrize("lockstep", [True, False])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, recipe, changes, lockstep):
    argv = ("--total-steps", "260", "--num-envs", "2", *(["--lockstep"] if lockstep else []))
    whole = settings_for(tmp_path / "whole", recipe, *argv, **changes)
    broken = settings_for(tmp_path / "broken", recipe, *argv, **changes)
    train(whole)
    assert train(broken, stop=StopAt(71)).code == 85
    assert newest(broken)["state"]["progress"]["step"] == 142
    if recipe == "td3":
        assert newest(broken)["state"]["progress"]["updates"] % 3 != 0, "amid the turns of three"
    assert train(replace(broken, attempt=1), resume=True, seed=99).code == 0
    assert torch.equal(replay_rows(broken), replay_rows(whole))
    assert "have the sha256" in events(whole.run_dir)[-1]
    assert events(broken.run_dir)[-1] == events(whole.run_dir)[-1]


@pytest.mark.slow
def test_with_several_steps_the_replay_holds_their_sums(tmp_path):
    settings = settings_for(tmp_path, "dqn", "--total-steps", "200", "--num-envs", "2", **SEVERAL_STEPS)
    learner = train(settings).learner
    assert isinstance(learner.replay, NStepReplay)
    held = replay_rows(settings)
    reward, goes_on = held[:, 5], held[:, -1]
    gamma = settings.recipe.values["gamma"]
    # CartPole pays 1 a step: the sum tells how many steps a transition has
    sums = torch.tensor([1.0, 1.0 + gamma, 1.0 + gamma + gamma**2])
    steps = (reward[:, None] - sums).abs().argmin(1)
    torch.testing.assert_close(reward, sums[steps])
    full = goes_on > 0
    torch.testing.assert_close(goes_on[full], torch.full_like(goes_on[full], gamma) ** steps[full])
    assert {0, 1, 2} == set(steps[~full].tolist())


@pytest.mark.slow
def test_epsilon_falls_with_the_steps_of_the_run(tmp_path):
    changes = {"exploration_share": "0.5", "epsilon_end": "0.2"}
    settings = settings_for(tmp_path, "dqn", "--total-steps", "100", "--num-envs", "1", **changes)
    train(settings, stop=StopAt(25))
    found = [float(newest(settings)["model"]["learner"]["policy"]["epsilon"])]
    train(replace(settings, attempt=1), resume=True)
    found.append(float(newest(settings)["model"]["learner"]["policy"]["epsilon"]))
    # as it was in the last vector step: the 25th of a hundred, and the last
    assert found == pytest.approx([1.0 - 0.8 * 0.24 / 0.5, 0.2])


@pytest.mark.slow
def test_the_epsilon_in_the_log_of_a_resumed_run_is_that_of_a_whole_one(tmp_path):
    changes = {"exploration_share": "1.0", "env_steps_per_update": "16"}
    argv = ("--total-steps", "120", "--num-envs", "2", "--log-every", "2")
    whole, broken = (settings_for(tmp_path / name, "dqn", *argv, **changes) for name in ("whole", "broken"))
    train(whole)
    train(broken, stop=StopAt(41))
    train(replace(broken, attempt=1), resume=True, seed=99)
    told = [
        {row["step"]: row["epsilon/CartPole-v1"] for row in rows(settings.run_dir, "train")}
        for settings in (whole, broken)
    ]
    assert told[0] == told[1]
    assert len(set(told[0].values())) > 40


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "environment"), [("td3", "Pendulum-v1"), ("dqn", "CartPole-v1")])
def test_evaluate_plays_the_same_episodes_as_the_run_did(tmp_path, capsys, recipe, environment):
    argv = ("--total-steps", "60", "--eval-every", "60", "--num-envs", "2")
    changes = {"environment": environment, "evaluation_episodes": "4"}
    train(settings_for(tmp_path, recipe, *argv, **changes))
    capsys.readouterr()
    assert evaluate.main([str(tmp_path), "--episodes", "4", "--workers", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["return/mean"] == rows(tmp_path, "eval")[-1]["return/mean"]
