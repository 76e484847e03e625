"""A project with packages of its own that are called `trainer` and `clusterkit`, on the local cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project

pytestmark = pytest.mark.slow

SETTINGS = """
[project]
default_profile = "mine"

[profiles.mine]
time = "5m"
program = ["python", "train.py"]

[profiles.module]
time = "5m"
program = ["python", "-m", "trainer", "train"]

[profiles.ours]
time = "10m"
recipe = "ppo"
device = "cpu"
total_steps = 256
num_envs = 2
workers = 0
eval_every = 256
eval_episodes = 1
checkpoint_every = 256
"""
PROGRAM = """
import os, pathlib
import clusterkit, trainer
found = f"{trainer.WHOSE} {clusterkit.WHOSE}"
pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"], "found").write_text(found)
"""
MAZE = """
import gymnasium
import numpy as np


class Maze(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, False, self.steps == 5, {}


gymnasium.register("Maze-v0", Maze)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder = tmp_path / "project"
    for name in ("trainer", "clusterkit"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("WHOSE = 'theirs'\n")
    (folder / "trainer" / "__main__.py").write_text(PROGRAM)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "maze.py").write_text(MAZE)
    (folder / "maze_of_trainer.py").write_text(f"import trainer.maze\n{MAZE}")
    (folder / "trainer" / "maze.py").write_text(MAZE)
    (folder / "clusterkit.toml").write_text(SETTINGS)
    return Project(folder)


def typed(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    """As the installed command does it: `python -m` would look in the folder of the project first."""
    code = "import clusterkit_rl; clusterkit_rl.main()"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=project.folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_imports_the_packages_of_its_project(own: Project) -> None:
    done = typed(own, "submit")
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    own.ended(run_id)
    assert (own.run_dir(run_id) / "found").read_text() == "theirs theirs"


def test_a_program_that_is_called_as_the_bundled_one_is_refused_and_runs_as_it_is_told(own: Project) -> None:
    done = typed(own, "submit", "--profile", "module")
    assert done.returncode == 3
    cause, step = done.stderr.splitlines()
    named = own.folder / "trainer" / "__init__.py"
    assert cause == f"error: `python -m trainer` is the bundled trainer, and {named} has the same name"
    assert step == "next:  write `python -m trainer.__main__` for your own"
    settings = own.folder / "clusterkit.toml"
    settings.write_text(SETTINGS.replace('"-m", "trainer", "train"', '"-m", "trainer.__main__", "train"'))
    run_id = typed(own, "submit", "--profile", "module").stdout.strip()
    own.ended(run_id)
    assert (own.run_dir(run_id) / "found").read_text() == "theirs theirs"


def test_the_bundled_trainer_runs_in_an_environment_of_the_project(own: Project) -> None:
    environment = ["--set", "environment=maze:Maze-v0", "--unlock", "environment"]
    done = typed(own, "submit", "--profile", "ours", *environment)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    own.ended(run_id)
    log = own.run_dir(run_id) / "attempts" / "0" / "log"
    exit_record = json.loads((own.run_dir(run_id) / "attempts" / "0" / "exit.json").read_text())
    assert exit_record["why"] == "completed", log.read_text()
    assert typed(own, "sync-results", run_id).returncode == 0
    evaluated = typed(own, "evaluate", run_id, "--episodes", "2", "--json", "--environment", "maze:Maze-v0")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["mean"]["mean_return"] == 5.0


@pytest.mark.parametrize("module", ["trainer.maze", "maze_of_trainer"])
def test_an_environment_inside_a_package_called_trainer_is_refused_with_the_reason(
    own: Project, module: str
) -> None:
    environment = ["--set", f"environment={module}:Maze-v0", "--unlock", "environment"]
    done = typed(own, "submit", "--profile", "ours", *environment)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    own.ended(run_id)
    log = (own.run_dir(run_id) / "attempts" / "0" / "log").read_text()
    assert "give your package of that name another one, or keep the environment outside of it" in log
