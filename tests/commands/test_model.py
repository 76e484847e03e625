"""`clusterkit evaluate` and `clusterkit play` on a pulled run, with the real trainer."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import trainer.evaluate
from clusterkit.cli.model import measure
from clusterkit.cli.ui.model import ChosenModel, Evaluated, Score, show_evaluated
from clusterkit.errors import RunError
from tests.commands.conftest import Project
from tests.results.run_dirs import evaluation, make_run_dir, write_metrics
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.checkpoint.model import about, save_final
from trainer.envs.spaces import unit_box
from trainer.errors import UsageError
from trainer.recipe import load


def untrained(folder: Path, document: dict[str, Any], tasks: tuple[str, ...], sizes: tuple[int, int]) -> None:
    """Write the final model of a run that has learnt nothing.

    Args:
        folder: of the run.
        document: of the recipe.
        tasks: of the run, or its environment.
        sizes: of an observation and of an action.
    """
    learner = SAC(SACConfig.from_values(document["values"]), *sizes, len(tasks))
    save_final(folder, about(document, tasks, *sizes, 0, unit_box(sizes[1])), learner.state_dict())


@pytest.fixture
def run_dir(project: Project) -> Path:
    folder = make_run_dir(project.folder / "results", "demo-1")
    write_metrics(folder, [evaluation(256_000, {"reach-v3": 0.5, "drawer-close-v3": 1.0})])
    untrained(folder, load("local-demo").as_json(), ("reach-v3", "drawer-close-v3"), (39, 4))
    # A package of the user's own with the trainer's name is not what is run.
    (project.folder / "trainer").mkdir()
    (project.folder / "trainer" / "__init__.py").write_text("raise SystemExit('the wrong trainer')")
    return folder


@pytest.mark.slow
def test_evaluate(project: Project, run_dir: Path) -> None:
    done = project.run("evaluate", "demo-1", "--episodes", "2", "--checkpoint", "best", "--json")
    document = json.loads(done.stdout)
    assert list(document["tasks"]) == ["reach-v3", "drawer-close-v3"]
    assert document["episodes"] == 2
    reach = document["tasks"]["reach-v3"]
    assert 0 <= reach["low"] <= reach["success"] <= reach["high"] <= 1
    assert "75.0% in training" in done.stderr


def test_the_table_of_an_evaluation_ends_with_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    score = Score(0.5, 0.4, 0.6, 1.0, 500.0)
    show_evaluated(Evaluated(ChosenModel(Path("m.pt"), "m", Path()), 1, 50, {"reach-v3": score}, score))
    assert capsys.readouterr().out.splitlines()[-1].startswith("mean")


def foreign(folder: Path, environment: str) -> None:
    """Write a final model whose environment is in a module of somebody's."""
    document = load("sac").as_json()
    document["values"] = {**document["values"], "environment": environment}
    untrained(folder, document, (environment,), (3, 1))


EVIL = "import pathlib, gymnasium\npathlib.Path({ran!r}).touch()\n"
MINE = """
import gymnasium, numpy
class Own(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), numpy.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return numpy.zeros(3, numpy.float32), {}
    def step(self, action):
        self.steps += 1
        return numpy.zeros(3, numpy.float32), 2.0, False, self.steps == 5, {}
    def render(self):
        return numpy.full((64, 64, 3), 40 * self.steps, numpy.uint8)
gymnasium.register("Own-v0", Own)
"""


@pytest.mark.slow
def test_a_strangers_code_is_not_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run_dir(project.folder / "results", "demo-1")
    ran = project.folder / "ran"
    name = "results.demo-1.evil:Own-v0"
    foreign(run, name)
    (run / "evil.py").write_text(EVIL.format(ran=str(ran)))
    (run / "queue.py").write_text(EVIL.format(ran=str(ran)))  # has the name of one of Python's own
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # its parts are the working directory
    refused = project.run("evaluate", "demo-1", "--environment", name, code=8)  # even when it is named
    assert "code that came with results" in refused.stderr
    model = ChosenModel(run / "checkpoints" / "final_model.pt", "demo-1", run, pulled=(run.parent,))
    monkeypatch.chdir(run)
    missing = "results.demo-1" if find_spec("results") else "results"  # `make demo` leaves such a folder
    with pytest.raises(RunError, match=f"No module named '{missing}'"):
        measure(model, 1)
    assert not ran.exists()


@pytest.mark.slow
def test_play_with_code_of_the_user_that_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run_dir(project.folder / "results", "demo-1")
    (project.folder / "mine.py").write_text(MINE)
    foreign(run, "mine:Own-v0")
    monkeypatch.chdir(project.folder)
    with pytest.raises(UsageError, match="neither installed nor tracked by git") as refused:
        trainer.evaluate.main([str(run), "--episodes", "1"])
    assert "--environment mine:Own-v0" in str(refused.value.hint)
    named = ("--environment", "mine:Own-v0")
    done = project.run("play", "demo-1", *named, "--task", "mine:Own-v0", "--out", "films", "--size", "64")
    *_, video, sheet = done.stdout.splitlines()
    assert Path(video).stem == "mine-Own-v0"
    assert (project.folder / sheet).read_bytes().startswith(b"\x89PNG")


def test_what_is_not_here(project: Project) -> None:
    make_run_dir(project.folder / "results", "demo-1")
    refused = project.run("evaluate", "demo-1", code=8)
    assert "clusterkit sync-results demo-1 --checkpoints last" in refused.stderr
    refused = project.run("evaluate", "demo-1", "--checkpoint", "step-000000000010", code=8)
    assert "no such checkpoint" in refused.stderr


@pytest.mark.slow
def test_without_the_trainers_packages(project: Project, run_dir: Path, tmp_path: Path) -> None:
    hide = (
        "import sys\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in ('torch', 'metaworld') else real(name, *rest)\n"
        "from clusterkit.cli.app import main\n"
        "sys.argv[1:] = ['play', 'demo-1']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", hide],
        cwd=project.folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 1
    assert "torch and metaworld not installed" in done.stderr
    root = Path(__file__).resolve().parents[2]
    assert f"{sys.executable} -m pip install -e '{root}[train]'" in done.stderr.replace("\n", " ")
