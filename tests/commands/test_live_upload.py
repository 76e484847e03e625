"""sync-results --watch while a run logs to W&B offline: the whole way, from the program to the server."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests import forked
from tests.commands.conftest import Project
from tests.doubles.wandb_server import WandbServer

pytestmark = pytest.mark.slow

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

STEPS = 40
LOGS = f"""
import os, pathlib, time, wandb
run_dir = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
run = wandb.init(settings=wandb.Settings(console="off"))
for step in range({STEPS}):
    run.log({{"loss": 1 / (step + 1)}}, step=step)
    time.sleep(0.1)
    while step == {STEPS} // 2 and not (run_dir / "go-on").exists():
        time.sleep(0.1)
run.finish()
"""


def test_steps_arrive_while_it_runs_and_each_once(project: Project) -> None:
    (project.folder / "train.py").write_text(LOGS)
    with (project.folder / "clusterkit.toml").open("a") as file:
        file.write(f'\n[clusters.local]\npython = "{sys.executable}"\n')  # it has the wandb client
    with WandbServer() as server:
        run_id = project.submit()
        environment = {**os.environ, **server.client_env(project.folder.parent)}
        words = ["sync-results", "--watch"]
        watch = forked.start(words, folder=project.folder, env=environment, program="clusterkit")
        try:
            project.until(lambda: run_id in server.runs and len(server.runs[run_id].arrived_steps) > 1)
            assert server.runs[run_id].state == "running"
            (project.run_dir(run_id) / "go-on").touch()
            said, _ = watch.communicate(timeout=300)
        finally:
            watch.kill()
        assert watch.returncode == 0, said
        time.sleep(0.5)
        arrived = server.runs[run_id]
        assert list(server.runs) == [run_id]
        assert arrived.arrived_steps == list(range(STEPS))
        assert arrived.once
        assert arrived.state == "finished"
