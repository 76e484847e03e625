"""A project in a temporary folder, and the real command line run in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.doubles.slurm_site import SlurmSite
from tests.needs import needing
from tests.programs import write_program
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


Tool = Callable[[str, str], Path]


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

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Starts clusterkit in a process that imports it anew, and reads what it writes."""
        return subprocess.Popen(
            [sys.executable, "-m", "clusterkit", *words],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, *arguments: str) -> str:
        """Submit and return the run id."""
        return self.run("submit", *arguments).stdout.strip()

    def rows(self, *names: str) -> list[dict[str, Any]]:
        """Returns the runs of `status --json`."""
        return list(json.loads(self.run("status", "--json", *names).stdout)["runs"])

    def states(self, *names: str) -> list[str]:
        """Returns the states of runs."""
        return [row["state"] for row in self.rows(*names)]

    def row(self, run_id: str) -> dict[str, Any]:
        """Returns the only run of this name."""
        (row,) = self.rows(run_id)
        return row

    def add(self, settings: str) -> None:
        """Adds lines to clusterkit.toml."""
        with (self.folder / "clusterkit.toml").open("a") as file:
            file.write(settings)

    def run_dir(self, run_id: str) -> Path:
        return self.folder / ".clusterkit" / "local" / "runs" / run_id

    def described(self, run_id: str) -> dict[str, Any]:
        """Returns a run's run.json."""
        return dict(json.loads((self.run_dir(run_id) / "run.json").read_text()))

    def request(self, run_id: str, number: int = 0) -> dict[str, Any]:
        """Returns the request of a run's submission."""
        path = self.run_dir(run_id) / "submissions" / str(number) / "request.json"
        return dict(json.loads(path.read_text()))

    until = staticmethod(until)

    def begun(self, run_id: str) -> None:
        """Waits for a run's heartbeat."""
        self.until((self.run_dir(run_id) / "heartbeat.json").exists)

    def ended(self, *run_ids: str, attempt: int = 0) -> None:
        """Waits for the exit records of an attempt."""
        for run_id in run_ids:
            self.until((self.run_dir(run_id) / "attempts" / str(attempt) / "exit.json").exists)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return new_project(tmp_path / "my project", monkeypatch)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, str]]:
    """A project with a run that goes on until it is cancelled, for those who only look at it."""
    with pytest.MonkeyPatch.context() as patch:
        project = new_project(tmp_path_factory.mktemp("running") / "my project", patch)
        run_id = project.submit("--", "sleep")
        project.begun(run_id)
        yield project, run_id
        project.run("cancel", run_id, "--yes")


def new_project(folder: Path, patch: pytest.MonkeyPatch) -> Project:
    """A project in a folder that is made, whose commands know no settings or keys of this user."""
    patch.setenv("XDG_CONFIG_HOME", str(folder.parent / "no-config"))
    patch.delenv("WANDB_API_KEY", raising=False)
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "clusterkit.toml").write_text(CONFIG)
    return Project(folder)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Writes a script that stands in the place of a program on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return partial(write_program, folder)


@pytest.fixture
@needing("sshd")
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    """A project whose cluster is a sshd with a squeue and a sacct that say what a test wants."""
    with closing(SlurmSite(tmp_path / "site")) as running:
        yield running
