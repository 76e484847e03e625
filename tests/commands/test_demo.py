"""The demo, where somebody leaves it before its end."""

import os
import signal
import subprocess
import sys

import pytest

from tests.commands.conftest import Project

SLEEPER = """
[profiles.sleeper]
program = ["python", "train.py", "sleep"]
time = "5m"
"""


@pytest.mark.slow
def test_ctrl_c_says_that_the_run_goes_on_and_how_to_end_it(project: Project) -> None:
    with (project.folder / "clusterkit.toml").open("a") as file:
        file.write(SLEEPER)
    process = subprocess.Popen(
        [sys.executable, "-m", "clusterkit", "demo", "--profile", "sleeper"],
        cwd=project.folder,
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
        project.run("cancel", "--yes", run_id)
