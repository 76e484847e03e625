"""The demo, where somebody leaves it before its end, and where it is out of place."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project


@pytest.mark.slow
def test_ctrl_c_says_that_the_run_goes_on_and_how_to_end_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clusterkit"]
    process = subprocess.Popen(
        [*command, "demo", "--total-steps", "64000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    try:
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert f"interrupted; {run_id} was submitted\n" in errors
        assert f"`clusterkit cancel {run_id}` ends it" in errors
    finally:
        subprocess.run([*command, "cancel", "--yes", run_id], cwd=tmp_path, check=True)


def test_it_does_not_take_the_projects_program_for_the_trainer(project: Project) -> None:
    refused = project.run("demo", code=3)
    assert "the profile local-demo runs a program of this project" in refused.stderr
    assert project.run("status", "--json").stdout.count("run_id") == 0
