"""The stand-in sees what the real wandb client sends twice or overwrites: proofs count on that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles import forked_wandb
from tests.doubles.wandb_run import HISTORY, Run
from tests.doubles.wandb_server import WandbServer
from tests.wandb.wandb_runs import write_offline_run

pytestmark = pytest.mark.slow  # each upload starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

STEPS = 25


def test_a_log_that_is_sent_twice_is_seen_as_duplicates(tmp_path: Path) -> None:
    log = write_offline_run(tmp_path / "run", "run1", range(STEPS))
    with WandbServer() as server:
        env = {"PATH": os.environ["PATH"]} | server.client_env(tmp_path) | forked_wandb.variables()
        for options in ([], ["--include-synced"]):
            argv = [sys.executable, "-m", "wandb", "sync", *options, str(log.parent)]
            subprocess.run(argv, env=env, cwd=tmp_path, check=True, capture_output=True)
            assert server.runs["run1"].once != bool(options)
        assert server.runs["run1"].duplicate_steps == dict.fromkeys(range(STEPS), 2)


@pytest.mark.parametrize("second", [0, 2], ids=["overwritten", "missing between"])
def test_rows_at_other_places_do_not_count_as_once(second: int) -> None:
    run = Run("me", "demo", "run1")
    for step, offset in enumerate((0, second)):
        run.stream({"files": {HISTORY: {"offset": offset, "content": [json.dumps({"_step": step})]}}})
    assert not run.once
