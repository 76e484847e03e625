"""Going back to a checkpoint when the numbers became useless; the command itself is in test_train.py."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.trainer.runs import events, newest, store_of
from tests.trainer.test_off_policy import settings_for
from tests.trainer.toys import Counter, CounterFactory
from trainer import training
from trainer.errors import DivergedError
from trainer.preemption import StopSignals
from trainer.telemetry import Telemetry


class Spoilt(Counter):
    """Gives rewards that are no numbers for some of all the steps ever made, in this process."""

    made: ClassVar[int] = 0
    bad: ClassVar[range] = range(0)

    def step(self, action):
        Spoilt.made += 1
        observation, reward, success = super().step(action)
        return observation, (np.nan if Spoilt.made in Spoilt.bad else reward), success


@dataclass(frozen=True)
class SpoiltFactory(CounterFactory):
    def __call__(self, task):
        return Spoilt(task, self.fault)


def carry_out(settings) -> int:
    torch.manual_seed(0)
    telemetry = Telemetry.open(settings.run_dir, {}, settings.total_steps, 0, "disabled")
    device, stop = torch.device("cpu"), StopSignals()
    with telemetry:
        return training._run(settings, SpoiltFactory(), device, telemetry, stop, store_of(settings), None)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Spoilt, "made", 0)
    argv = ("--total-steps", "3000", "--num-envs", "3", "--checkpoint-every", "300", "--log-every", "30")
    return settings_for(tmp_path, *argv)


def test_numbers_that_go_bad_once_cost_the_way_back_to_the_last_checkpoint(settings, monkeypatch):
    monkeypatch.setattr(Spoilt, "bad", range(1300, 1900))
    assert carry_out(settings) == 0
    back = [event for event in events(settings.run_dir) if "back to step" in event]
    assert len(back) == 1
    assert "updates in a row had a loss or gradient that is not finite: back to step 1,200" in back[0]
    assert newest(settings)["state"]["progress"]["step"] == 3000


def test_numbers_that_stay_bad_end_the_run_with_the_cause(settings, monkeypatch):
    monkeypatch.setattr(Spoilt, "bad", range(1300, 10**9))
    with pytest.raises(DivergedError, match=r"10\d updates in a row"):
        carry_out(settings)
    assert len([event for event in events(settings.run_dir) if "back to step" in event]) == 2


def test_without_a_checkpoint_there_is_no_way_back(settings, monkeypatch):
    monkeypatch.setattr(Spoilt, "bad", range(10**9))
    with pytest.raises(DivergedError, match=r"10\d updates in a row"):
        carry_out(settings)
