"""The real client, serving several runs of a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.trainer.test_wandb_run import exit_codes, helpers, nobodys_account, opened, rows
from trainer.telemetry.wandb_run import WandbLostError

__all__ = ["nobodys_account"]  # a fixture that pytest finds here

pytestmark = pytest.mark.slow  # each test starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")


def test_several_runs_of_a_process_are_apart_and_end_by_themselves(tmp_path: Path) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in (1, 2, 3)]
    runs = [opened(folder) for folder in folders[:2]]
    for step in (0, 10):
        for number, run in enumerate(runs):
            run.log(step, {"seed": number + 1})
    runs[0].finish(0)
    runs.append(opened(folders[2]))  # also after one has ended
    for step in (20, 30):
        for number, run in enumerate(runs[1:], 1):
            run.log(step, {"seed": number + 1})
    runs[2].finish(1)
    runs[1].finish(85)
    assert [[(row["_step"], row["seed"]) for row in rows(folder)] for folder in folders] == [
        [(0, 1), (10, 1)],
        [(0, 2), (10, 2), (20, 2), (30, 2)],
        [(20, 3), (30, 3)],
    ]
    assert [exit_codes(folder) for folder in folders] == [[0], [85], [1]]
    assert len({run.id for run in runs}) == 3


@pytest.mark.needs("procfs")
def test_a_dead_client_is_told_by_each_run_it_served(tmp_path: Path) -> None:
    before = helpers()
    runs = [opened(tmp_path / name) for name in ("a", "b")]
    (helper,) = helpers() - before
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    for run in runs:
        with pytest.raises(WandbLostError, match="could not close"):
            run.finish(0)
    run = opened(tmp_path / "c")
    run.log(0, {"seed": 3})
    run.finish(0)
    assert len(rows(tmp_path / "c")) == 1
