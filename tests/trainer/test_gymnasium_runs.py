"""SAC on environments that end their episodes themselves: the loop, resumption, evaluate and play."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer.runs import StopAt, events, replay_rows, rows, settings_for, train
from trainer import evaluate, play
from trainer.camera import filming
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.errors import TrainerError, UsageError
from trainer.loops import training
from trainer.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("warm_processes")

HERE = "tests.trainer.envs_for_tests"


def sac_on(environment: str, run_dir: Path, *argv: str) -> TrainSettings:
    return settings_for(run_dir, "sac", *argv, environment=environment)


@pytest.mark.slow
def test_what_is_remembered_is_what_happened(tmp_path):
    settings = sac_on(f"{HERE}:Gates-v0", tmp_path, "--total-steps", "240", "--num-envs", "3")
    assert settings.tasks == (f"{HERE}:Gates-v0",)
    train(settings)
    remembered = replay_rows(settings)
    assert len(remembered) == 240
    observation, action, reward, following, goes_on = torch.split(remembered, [2, 1, 1, 2, 1], dim=1)
    # episodes are 3 or 4 steps long, as their number says; what an action led to is of the same episode
    assert torch.equal(following, observation + torch.tensor([1.0, 0.0]))
    length = 3 + observation[:, 1] % 2
    assert torch.equal(goes_on[:, 0] == 0, following[:, 0] == length)
    assert set(length[goes_on[:, 0] == 0].tolist()) == {3.0, 4.0}
    torch.testing.assert_close(reward, 1 + action * 2)  # stretched from -1..1 to -1..3


@pytest.mark.slow
def test_a_cut_by_time_is_bootstrapped(tmp_path):
    settings = sac_on("Pendulum-v1", tmp_path, "--total-steps", "450", "--num-envs", "2")
    train(settings)
    assert replay_rows(settings)[:, -1].all()
    told = [row for row in rows(tmp_path, "train") if "return/mean" in row]
    assert len(told) == 0 or told[0]["return/mean"] < 0
    assert not any(key.startswith("train_success") for row in rows(tmp_path, "train") for key in row)


@pytest.mark.slow
def test_where_an_episode_cannot_go_on_the_run_says_so_and_goes_on_itself(tmp_path):
    settings = sac_on(f"{HERE}:HiddenGates-v0", tmp_path, "--total-steps", "120", "--num-envs", "2")
    assert train(settings, stop=StopAt(40)).code == 85
    before = replay_rows(settings)
    assert train(replace(settings, attempt=1), resume=True).code == 0
    assert any(
        "state of these environments cannot be put back (an episode put back goes another way)" in event
        and "new episodes are started" in event
        for event in events(tmp_path)
    )
    assert torch.equal(replay_rows(settings)[:80], before)
    assert len(replay_rows(settings)) == 120


@pytest.mark.slow
def test_environments_that_are_stepped_in_no_time_have_no_process_and_learn_the_same(tmp_path, monkeypatch):
    finals = []
    for quick, where in ((True, "the learner's own process"), (False, "1 worker process")):
        monkeypatch.setattr(training, "quick", lambda *_, quick=quick: quick)
        settings = sac_on("Pendulum-v1", tmp_path / where, "--total-steps", "60", "--device", "cpu")
        settings = replace(settings, workers=1, workers_optional=True, threads=1)
        assert training.train(settings) == 0
        said = events(settings.run_dir)
        assert any(f"1 environment in {where}" in event for event in said)
        finals += [event for event in said if "sha256" in event]
    assert len(finals) == 2
    assert finals[0] == finals[1]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("Pendulum-v9", "no environment 'Pendulum-v9'; did you mean Pendulum-v1"),
        ("Pendulum-v1?h=1", "TypeError: .*unexpected keyword argument 'h'"),
        (f"{HERE}:Odd-v0?reward=null", "a reward is None, not one number"),
        ("CartPole-v1", "CartPole-v1 has discrete actions, which SAC cannot learn"),
    ],
)
def test_an_environment_that_cannot_be_made_is_refused_before_anything_is_written(
    tmp_path, environment, words
):
    with pytest.raises(UsageError, match=words):
        training.train(sac_on(environment, tmp_path / "run", "--device", "cpu", "--threads", "1"))
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, warm_processes: None) -> Path:
    """A finished run with evaluations."""
    home = tmp_path_factory.mktemp("gates")
    settings = sac_on(f"{HERE}:Gates-v0", home, "--total-steps", "60", "--eval-every", "30")
    train(settings)
    return home


@pytest.mark.slow
def test_a_runs_evaluations_tell_returns_and_lengths(trained):
    found = rows(trained, "eval")
    assert [row["step"] for row in found] == [30, 60]
    for row in found:
        assert 3 <= row["length/mean"] <= 4
        assert row["return_low/mean"] <= row["return/mean"] <= row["return_high/mean"]
        assert not any(key.startswith("success") for key in row)


@pytest.mark.slow
def test_the_arguments_of_an_environment_reach_training_evaluation_play_and_resumption(tmp_path, capsys):
    name = f"{HERE}:Gates-v0?fault=render"  # which shows that the argument arrived
    for words in (("40",), ("60", "--resume")):
        options = ("--device", "cpu", "--threads", "1", "--total-steps", *words)
        assert training.train(sac_on(name, tmp_path, *options)) == 0
    assert rows(tmp_path, "run")[-1]["tasks"] == [name]
    capsys.readouterr()
    assert [row["step"] for row in rows(tmp_path, "run")] == [0, 40]
    assert evaluate.main([str(tmp_path), "--episodes", "2", "--workers", "0", "--json"]) == 0
    assert f"return/{name}" in json.loads(capsys.readouterr().out)
    with pytest.raises(TrainerError, match="no colours"):
        play.main([str(tmp_path), "--folder", str(tmp_path / "film"), "--size", "64", "--episodes", "1"])


class Frames:
    """A film that keeps what it is given."""

    def __init__(self) -> None:
        self.frames: list[np.ndarray] = []

    def add(self, frame, caption) -> None:
        self.frames.append(frame)


@pytest.mark.slow
def test_play_films_what_the_environment_draws(trained, tmp_path, capsys):
    assert play.main([str(trained), "--folder", str(tmp_path), "--size", "64", "--episodes", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{HERE}:Gates-v0 seed 0: return ")
    assert said[2].startswith("mean return ")
    names = {path.name.rpartition(".")[0] for path in tmp_path.iterdir()}
    assert names == {f"{HERE}-Gates-v0", "contact-sheet"}


def test_play_says_when_there_are_no_pictures():
    class Still:
        def act(self, observation, task, *, greedy):
            return np.zeros((1, 1), np.float32)

    def play_one(name: str) -> None:
        factory = GymnasiumFactory(f"{HERE}:{name}", actions="clipped", seed=0)
        filming.film_gymnasium(Still(), factory, 0, 64, film)

    film = Frames()
    for name, fault, words in (
        ("HiddenGates-v0", UsageError, "HiddenGates-v0 cannot be filmed: it can render nothing"),
        ("BlindGates-v0", TrainerError, "BlindGates-v0 cannot be drawn here: no colours"),
    ):
        with pytest.raises(fault, match=words):
            play_one(name)
    with pytest.raises(TrainerError, match=r"BareGates-v0 cannot be drawn here: no paint$") as caught:
        play_one("BareGates-v0")
    assert caught.value.hint == f'{sys.executable} -m pip install "paint[all]"'
    assert film.frames == []
