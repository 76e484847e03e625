"""The rehearsal program: it waits for the signal, and then ends by itself."""

import signal

import pytest

from tests.trainer.processes import SMALL, finish, start, step_of, until
from trainer.drill import FURTHER

DRILL = [
    *("drill", "--recipe", "sac", *SMALL, "--num-envs", "4", "--workers", "0", "--eval-every", "0"),
    *("--checkpoint-every", "0", "--device", "cpu", "--wandb", "disabled"),
]


@pytest.mark.slow
def test_it_waits_for_the_signal_and_then_goes_a_little_further(tmp_path):
    first = start(tmp_path, *DRILL)
    until(first, lambda: step_of(tmp_path) >= 100)
    first.send_signal(signal.SIGUSR1)
    output = finish(first)
    assert first.returncode == 85, output
    reached = step_of(tmp_path)
    second = start(tmp_path, *DRILL, attempt=1)
    output = finish(second)
    assert second.returncode == 0, output
    assert step_of(tmp_path) == reached + FURTHER
