"""A project in a temporary folder, and the real command line run in it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked
from tests.doubles.slurm_site import SlurmSite
from tests.needs import needing
from tests.waiting import until

PROGRAM = """
import json, os, pathlib, signal, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
(run / "arguments.json").write_text(json.dumps(sys.argv[1:]))
(run / "cwd").write_text(os.getcwd())
(run / "seed").write_text(os.environ["CLUSTERKIT_SEED"])
print("hello from", os.environ["CLUSTERKIT_RUN_ID"], flush=True)
beat = {"schema": 1, "time": time.time(), "step": 40, "total_steps": 100, "steps_per_second": 10.0}
(run / "heartbeat.json").write_text(json.dumps(beat))
if "sleep" in sys.argv:
    while True:
        time.sleep(0.1)
sys.exit(int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 0)
"""

CONFIG = """
[project]
name = "demo"
program = ["python", "train.py"]
default_profile = "tiny"

[profiles.tiny]
time = "5m"
"""


@dataclass(frozen=True)
class Project:
    """A project folder and its command line."""

    folder: Path

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run clusterkit; the exit code must be `code`."""
        done = forked.run(arguments, folder=self.folder, env={**os.environ, "COLUMNS": "200"})
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def submit(self, *arguments: str) -> str:
        """Submit and return the run id."""
        return self.run("submit", *arguments).stdout.strip()

    def run_dir(self, run_id: str) -> Path:
        return self.folder / ".clusterkit" / "local" / "runs" / run_id

    until = staticmethod(until)

    def ended(self, run_id: str) -> None:
        """Wait for a run's exit record."""
        self.until((self.run_dir(run_id) / "attempts" / "0" / "exit.json").exists)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return new_project(tmp_path / "my project", monkeypatch)


def new_project(folder: Path, patch: pytest.MonkeyPatch) -> Project:
    """A project in a folder that is made, whose commands know no settings or keys of this user."""
    patch.setenv("XDG_CONFIG_HOME", str(folder.parent / "no-config"))
    patch.delenv("WANDB_API_KEY", raising=False)
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "clusterkit.toml").write_text(CONFIG)
    return Project(folder)


@pytest.fixture
@needing("sshd")
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    """A project whose cluster is a sshd with a squeue and a sacct that say what a test wants."""
    with closing(SlurmSite(tmp_path / "site")) as running:
        yield running
