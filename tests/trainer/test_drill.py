"""The rehearsal program: it waits for the signal, and then ends by itself."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from trainer.drill import FURTHER

ARGUMENTS = [
    *("--recipe", "local-demo", "--num-envs", "4", "--workers", "0", "--eval-every", "0"),
    *("--eval-episodes", "1", "--checkpoint-every", "0", "--device", "cpu", "--wandb", "disabled"),
]


def start(run_dir, attempt: int) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", "drill", *ARGUMENTS],
        env=os.environ | {"CLUSTERKIT_ATTEMPT": str(attempt), "CLUSTERKIT_RUN_DIR": str(run_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def steps(run_dir) -> int:
    try:
        return json.loads((run_dir / "heartbeat.json").read_text())["step"]
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_it_waits_for_the_signal_and_then_goes_a_little_further(tmp_path):
    first = start(tmp_path, 0)
    deadline = time.monotonic() + 240
    while steps(tmp_path) < 100:
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    output, _ = first.communicate(timeout=180)
    assert first.returncode == 85, output
    reached = steps(tmp_path)
    second = start(tmp_path, 1)
    output, _ = second.communicate(timeout=180)
    assert second.returncode == 0, output
    assert steps(tmp_path) == reached + FURTHER
