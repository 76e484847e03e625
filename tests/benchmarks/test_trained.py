from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks._trained import trained
from trainer.preemption import EXIT_REQUEUE, StopSignals
from trainer.settings import TrainSettings, read_settings


def settings(folder: Path) -> TrainSettings:
    return read_settings(
        [
            *("--recipe", "a2c", "--total-steps", "400", "--num-envs", "4", "--workers", "0"),
            *("--run-dir", str(folder), "--device", "cpu", "--wandb", "disabled", "--eval-every", "0"),
        ],
        {},
    )


@pytest.mark.slow
def test_a_policy_is_one_that_has_been_trained_to_the_end(tmp_path: Path, capsys) -> None:
    policy = trained(settings(tmp_path / "whole"))
    action = policy.act(np.zeros((3, 4), np.float32), np.zeros(3, np.int32), greedy=True)
    assert action.shape == (3, 1)
    assert capsys.readouterr().out == ""
    with StopSignals() as stop:
        stop.take(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            trained(settings(tmp_path / "stopped"))
    assert ended.value.code == EXIT_REQUEUE
