"""Which checkpoint a run goes on from, or back to; the command itself is in test_train.py."""

import shutil
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tests.trainer.runs import events, newest, run, settings_of_counters, store_of
from tests.trainer.test_checkpoint import truncate
from tests.trainer.toys import Counter, CounterFactory
from trainer import checkpoint
from trainer.errors import CheckpointError, DivergedError, WorkerError
from trainer.loops import attempt, checkpointed, training
from trainer.loops.resuming import find
from trainer.loops.training import TrainingRun
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.settings import read_settings

pytestmark = pytest.mark.slow


class Spoilt(Counter):
    """Gives rewards that are no numbers for some of all the steps ever made, in this process."""

    made: ClassVar[int] = 0
    bad: ClassVar[range] = range(0)

    def step(self, action):
        Spoilt.made += 1
        observation, reward, success = super().step(action)
        return observation, (np.nan if Spoilt.made in Spoilt.bad else reward), success


def carry_out(settings) -> int:
    spoilt = patch.object(training, "factory_for", lambda *_: CounterFactory(kind=Spoilt))
    with spoilt, TrainingRun(settings, torch.device("cpu"), Ranks(), StopSignals()) as run:
        return run.train()


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Spoilt, "made", 0)
    argv = ("--total-steps", "900", "--num-envs", "3", "--checkpoint-every", "150", "--log-every", "30")
    return settings_of_counters(tmp_path, *argv)


def test_numbers_that_go_bad_once_cost_the_way_back_to_the_last_checkpoint(settings, monkeypatch):
    monkeypatch.setattr(attempt, "_MOST_SKIPPED", 20)
    monkeypatch.setattr(checkpointed, "_TROUBLED", 2)
    monkeypatch.setattr(Spoilt, "bad", range(350, 480))
    assert carry_out(settings) == 0
    back = [event for event in events(settings.run_dir) if "back to step" in event]
    assert len(back) == 1
    assert "updates in a row had a loss or gradient that is not finite: the environment of" in back[0]
    assert "gave a reward that is nan: back to step 300" in back[0]
    assert newest(settings)["state"]["progress"]["step"] == 900


def test_numbers_that_stay_bad_end_the_run_with_the_cause(settings, monkeypatch):
    monkeypatch.setattr(attempt, "_MOST_SKIPPED", 20)
    monkeypatch.setattr(checkpointed, "_TROUBLED", 2)
    monkeypatch.setattr(Spoilt, "bad", range(200, 10**9))
    with pytest.raises(DivergedError, match=r"2\d updates in a row"):
        carry_out(settings)
    assert len([event for event in events(settings.run_dir) if "back to step" in event]) == 2


def test_without_a_checkpoint_there_is_no_way_back(settings, monkeypatch):
    monkeypatch.setattr(Spoilt, "bad", range(10**9))
    with pytest.raises(DivergedError, match=r"10\d updates in a row"):
        carry_out(settings)


class Secretive(Counter):
    """Cannot say where it is."""

    def state(self):
        raise ValueError("the drawer is locked")


def test_a_worker_lost_while_a_checkpoint_is_written_costs_the_running_episodes_only(settings):
    with pytest.raises(WorkerError, match="the drawer is locked"):
        run(settings, CounterFactory(kind=Secretive))
    state = newest(settings)["state"]
    assert state["progress"]["step"] == 150
    assert state["environments"] is None
    assert run(settings, CounterFactory(), resume=True).code == 0
    assert any("new episodes are started" in event for event in events(settings.run_dir))


@pytest.fixture
def made(tmp_path):
    """A run of two checkpoints, about to be resumed."""
    argv = ("--total-steps", "240", "--num-envs", "3", "--checkpoint-every", "120", "--resume")
    settings = settings_of_counters(tmp_path, *argv)
    run(settings, CounterFactory())
    return settings


def test_nothing_there_is_a_beginning(tmp_path):
    said = []
    settings = settings_of_counters(tmp_path, "--resume")
    assert find(settings, store_of(settings), said) is None
    assert said == ["no checkpoint to resume: starting from the beginning"]


def test_a_damaged_checkpoint_is_passed_over_and_named(made):
    said = []
    truncate(checkpoint.directory(made.run_dir) / "step-000000000240")
    found = find(made, store_of(made), said)
    assert (found.path.name, found.replay) == ("step-000000000120", True)
    assert "model.pt has 100 bytes" in said[0]


def test_a_lost_replay_leaves_the_networks(made):
    said = []
    shutil.rmtree(checkpoint.directory(made.run_dir) / "replay")
    found = find(made, store_of(made), said)
    assert (found.path.name, found.replay) == ("step-000000000240", False)
    assert said[-1].startswith("the replay is lost")


def test_a_run_with_nothing_but_damage_is_not_started_afresh(made):
    for path in checkpoint.directory(made.run_dir).glob("step-*"):
        truncate(path)
    with pytest.raises(CheckpointError, match="none of the checkpoints") as caught:
        find(made, store_of(made), [])
    assert caught.value.hint.count("model.pt has 100 bytes") == 2
    assert "another --run-dir" in caught.value.hint


def test_it_says_who_steps_the_environments(tmp_path):
    argv = ["--recipe", "ppo", "--workers", "2", "--run-dir", str(tmp_path)]
    alone = training._setting(read_settings(argv, {}), torch.device("cpu"))
    assert alone.endswith("8 environments in 2 worker processes and the learner's own")
    shared = training._setting(read_settings(argv, {}, together=3), torch.device("cpu"))
    assert shared.endswith("8 environments in 2 worker processes, one of 3 runs in this process")
