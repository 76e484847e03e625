"""Ctrl-C ends every command that goes on with 130, and no run with it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests import forked
from tests.commands.conftest import Project, new_project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sleeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, str]]:
    """A project with a run that goes on until it is cancelled."""
    with pytest.MonkeyPatch.context() as patch:
        project = new_project(tmp_path_factory.mktemp("ctrl-c") / "my project", patch)
        run_id = project.submit("--", "sleep")
        project.until((project.run_dir(run_id) / "heartbeat.json").exists)
        yield project, run_id
        project.run("cancel", run_id, "--yes")


@pytest.mark.parametrize(
    "line",
    [
        "status --watch",
        "status --watch --json",
        "logs --follow",
        "top --json",
        "sync-results --watch --no-wandb",
        "sync-results --watch --no-wandb --json",
        "shell -- sleep 60",
    ],
)
def test_ctrl_c_ends_a_command_that_goes_on_with_130(sleeping: tuple[Project, str], line: str) -> None:
    project, run_id = sleeping
    process = forked.start(line.split(), env={**os.environ}, folder=project.folder, program="clusterkit")
    time.sleep(2)  # it has begun to wait
    assert process.poll() is None, process.communicate(timeout=60)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    if line.startswith("sync-results") and "--json" in line:
        assert json.loads(said)["runs"][0]["run_id"] == run_id
    status = json.loads(project.run("status", run_id, "--json").stdout)
    assert status["runs"][0]["state"] == "RUNNING"
