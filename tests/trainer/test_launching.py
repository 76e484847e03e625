"""`train --ranks 2`: real processes and a real signal; what the launcher does when a process dies."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from torch.distributed import HashStore

from tests.trainer.processes import SMALL, checkpoints, finish, start, step_of, until
from tests.waiting import until as holds
from trainer.ranks import launching, watch
from trainer.ranks.place import RankPlace
from trainer.ranks.watch import RankWatch

TINY = [
    *("train", "--recipe", "sac", "--total-steps", "10_000_000", "--num-envs", "4", "--ranks", "2", *SMALL),
    *("--device", "cpu", "--wandb", "disabled", "--workers", "0", "--eval-every", "0"),
]
RANK = """#!/bin/sh
trap 'exit 85' USR1
trap 'exit 1' TERM
: >"$READY$RANK"
if [ "$RANK" = "$DIES" ]; then kill -9 $$; fi
while :; do sleep 0.05; done
"""

THREE = RankPlace(0, 3, local_size=3, started=False)


@pytest.mark.slow  # two processes import PyTorch
def test_a_signal_to_the_launcher_stops_all_with_a_checkpoint(tmp_path):
    process = start(tmp_path, *TINY)
    until(process, lambda: step_of(tmp_path) >= 40)
    os.killpg(process.pid, signal.SIGUSR1)
    output = finish(process)
    assert process.returncode == 85, output
    assert "on 2 ranks" in output
    left_at = int(checkpoints(tmp_path)[-1].name.removeprefix("step-"))
    assert left_at == json.loads((tmp_path / "heartbeat.json").read_text())["step"]


@pytest.fixture
def ranks(tmp_path, monkeypatch) -> None:
    """Ranks that are shells."""
    script = tmp_path / "rank"
    script.write_text(RANK)
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(launching, "_PATIENCE", 0.3)
    monkeypatch.setenv("DIES", "none")
    monkeypatch.setenv("READY", str(tmp_path / "ready-"))


def test_signals_go_on_to_every_rank(ranks, tmp_path):
    before = signal.getsignal(signal.SIGUSR1)

    def send():
        holds(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=send).start()
    assert launching.launch([], THREE) == 85
    assert signal.getsignal(signal.SIGUSR1) == before


@pytest.mark.needs("ps")
def test_a_rank_that_is_killed_ends_the_others_and_is_named(ranks, monkeypatch, capfd):
    monkeypatch.setenv("DIES", "1")
    assert launching.launch([], THREE) == 128 + signal.SIGKILL
    assert "rank 1 of 3 was ended by SIGKILL" in capfd.readouterr().err
    children = subprocess.run(["ps", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "rank" not in children


def test_a_rank_that_falls_silent_or_fails_is_noticed(monkeypatch):
    monkeypatch.setattr(watch, "_INTERVAL", 0.02)
    store = HashStore()
    own = RankWatch(RankPlace(0, 2), store)
    assert own.cause(10) == "nothing has been heard from rank 1 of 2 for a while"
    own.dismiss()

    store = HashStore()
    own, other = RankWatch(RankPlace(0, 2), store), RankWatch(RankPlace(1, 2), store)
    other.announce("the disk is full")
    assert own.cause(10) == "rank 1 of 2 failed: the disk is full"
    own.dismiss()
    other.dismiss()
