"""`clusterkit evaluate` and `clusterkit play` on a pulled run, with the real trainer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.errors import RunError
from clusterkit.verbs.model import Chosen, evaluate
from tests.results.run_dirs import evaluation, make_run_dir, write_metrics
from tests.verbs.conftest import Project

UNTRAINED = """
import sys, pathlib
from trainer import model, recipe
from trainer.algorithms import sac
demo = recipe.load("local-demo")
learner = sac.SAC(sac.SACConfig.from_values(demo.values), 39, 4, 2)
about = model.about(demo.as_json(), ("reach-v3", "drawer-close-v3"), 39, 4, 0)
model.save_final(pathlib.Path(sys.argv[1]), about, learner.state_dict())
"""


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, "-c", UNTRAINED, home], check=True)
    return home / "checkpoints" / "final_model.pt"


@pytest.fixture
def run_dir(project: Project, untrained: Path) -> Path:
    folder = make_run_dir(project.folder / "results", "demo-1")
    write_metrics(folder, [evaluation(256_000, {"reach-v3": 0.5, "drawer-close-v3": 1.0})])
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "final_model.pt").write_bytes(untrained.read_bytes())
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
    table = project.run("evaluate", str(run_dir / "checkpoints" / "final_model.pt"), "-n", "1").stdout
    assert table.splitlines()[-1].startswith("mean")


@pytest.mark.slow
def test_play(project: Project, run_dir: Path) -> None:
    done = project.run("play", "demo", "--task", "drawer-close", "--out", "films", "--size", "64")
    *_, video, sheet = done.stdout.splitlines()
    assert done.stdout.startswith("drawer-close-v3 goal 0: ")
    assert Path(video).stem == "drawer-close-v3"
    assert (project.folder / sheet).read_bytes().startswith(b"\x89PNG")
    refused = project.run("play", "demo", "--task", "door", code=8)
    assert "it knows reach-v3, drawer-close-v3" in refused.stderr


FOREIGN = """
import sys, pathlib
from trainer import model, recipe
from trainer.algorithms import sac
document = recipe.load("sac").as_json()
values = document["values"] = {**document["values"], "environment": sys.argv[2]}
learner = sac.SAC(sac.SACConfig.from_values(values), 3, 1, 1)
about = model.about(document, (sys.argv[2],), 3, 1, 0)
model.save_final(pathlib.Path(sys.argv[1]), about, learner.state_dict())
"""
EVIL = "import pathlib, gymnasium\npathlib.Path({ran!r}).touch()\n"
MINE = "import gymnasium\ngymnasium.register('Own-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"


@pytest.mark.slow
def test_a_strangers_code_is_not_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run_dir(project.folder / "results", "demo-1")
    ran = project.folder / "ran"
    name = "results.demo-1.evil:Own-v0"
    subprocess.run([sys.executable, "-c", FOREIGN, run, name], check=True)
    (run / "evil.py").write_text(EVIL.format(ran=str(ran)))
    (run / "queue.py").write_text(EVIL.format(ran=str(ran)))  # has the name of one of Python's own
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # its parts are the working directory
    for command in (["evaluate", "demo-1", "-n", "1"], ["play", "demo-1", "--environment", name]):
        refused = project.run(*command, code=8)
        assert "code that came with results" in refused.stderr
    direct = [sys.executable, "-m", "trainer", "evaluate", str(run), f"--environment={name}"]
    done = subprocess.run(direct, cwd=project.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, "code that came with results" in done.stderr) == (2, True), done.stderr
    model = Chosen(run / "checkpoints" / "final_model.pt", "demo-1", run, pulled=(run.parent,))
    monkeypatch.chdir(run)
    with pytest.raises(RunError, match="No module named 'results'"):
        evaluate(model, 1)
    assert not ran.exists()


@pytest.mark.slow
def test_code_of_the_user_is_run_once_it_is_named(project: Project) -> None:
    run = make_run_dir(project.folder / "results", "demo-1")
    (project.folder / "mine.py").write_text(MINE)
    subprocess.run([sys.executable, "-c", FOREIGN, run, "mine:Own-v0"], check=True)
    refused = project.run("evaluate", "demo-1", "-n", "1", code=8)
    assert "neither installed nor tracked by git" in refused.stderr
    assert "--environment mine:Own-v0" in refused.stderr
    done = project.run("evaluate", "demo-1", "-n", "1", "--environment", "mine:Own-v0", "--json")
    assert json.loads(done.stdout)["episodes"] == 1


def test_what_is_not_here(project: Project) -> None:
    make_run_dir(project.folder / "results", "demo-1")
    refused = project.run("evaluate", "demo-1", code=8)
    assert "clusterkit sync-results demo-1 --checkpoints last" in refused.stderr
    refused = project.run("evaluate", "demo-1", "--checkpoint", "step-000000000010", code=8)
    assert "no such checkpoint" in refused.stderr


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
    assert "pip install 'clusterkit[train]'" in done.stderr
