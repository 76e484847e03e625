"""`clusterkit run`: one command from a program to its report."""

from __future__ import annotations

import json
import os
import re
import signal
import tomllib
from pathlib import Path

import pytest

from tests import forked
from tests.commands.conftest import Project

pytestmark = pytest.mark.slow

PROGRAM = """
import argparse, json, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--sleep", action="store_true")
parser.add_argument("--logdir", default="runs")
options = parser.parse_args()
os.makedirs(options.logdir, exist_ok=True)
with open(os.path.join(os.environ["CLUSTERKIT_RUN_DIR"], "metrics.jsonl"), "a") as file:
    for step in range(1, 6):
        row = {"kind": "train", "step": step, "time": time.time(), "attempt": 0}
        file.write(json.dumps({**row, "loss": options.lr * step + options.seed}) + "\\n")
print("learning rate", options.lr, "seed", options.seed, flush=True)
open(os.path.join(options.logdir, "arguments.json"), "w").write(json.dumps(vars(options)))
while options.sleep:
    time.sleep(0.1)
"""


@pytest.fixture
def program(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with a program and no settings."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (project.folder / "clusterkit.toml").unlink()
    (project.folder / "train.py").write_text(PROGRAM)
    return project


def newest(project: Project) -> Path:
    return max((project.folder / "results").glob("here-*"), key=lambda folder: folder.stat().st_mtime_ns)


def arguments(run: Path) -> dict[str, object]:
    return dict(json.loads((run / "out/arguments.json").read_text()))


def test_a_command_is_enough_where_nothing_is_set(program: Project) -> None:
    said = program.run("run", "python", "train.py", "--lr", "0.3")
    assert "wrote clusterkit.toml" in said.stderr
    assert "learning rate 0.3 seed 1" in said.stdout
    run = newest(program)
    assert arguments(run) == {
        "seed": 1,
        "lr": 0.3,
        "sleep": False,
        "logdir": f"{program.run_dir(run.name)}/out",
    }
    assert "<figcaption>loss</figcaption>" in (run / "report/report.html").read_text()
    settings = tomllib.loads((program.folder / "clusterkit.toml").read_text())
    words = ["python", "train.py", "--seed", "{seed}", "--logdir", "{run_dir}/out"]
    assert settings["project"]["program"] == words


def test_another_program_takes_the_place_of_the_one_that_is_set(program: Project) -> None:
    program.run("init", "--local")
    before = (program.folder / "clusterkit.toml").read_text()
    (program.folder / "other.py").write_text(PROGRAM.replace("learning rate", "other"))
    assert "other 2.0 seed 4" in program.run("run", "--seed", "4", "other.py", "--lr", "2").stdout
    assert "learning rate 2.0 seed 1" in program.run("run", "python", "train.py", "--lr", "2").stdout
    assert "learning rate 3.0 seed 1" in program.run("run", "--", "--lr", "3").stdout
    assert (program.folder / "clusterkit.toml").read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "trian.py"], "the program trian.py is not in"),
        (["python", "x" * 5000], "is not in"),
        (["trainn", "--lr", "2"], "there is no program 'trainn' here or on PATH"),
    ],
)
def test_no_settings_are_written_for_a_program_that_is_not_there(
    program: Project, words: list[str], said: str
) -> None:
    assert re.search(said, program.run("run", *words, code=3).stderr)
    assert not (program.folder / "clusterkit.toml").exists()


def test_seeds_are_compared(program: Project) -> None:
    said = program.run("run", "--seeds", "1..2", "--time", "3m", "python", "train.py")
    assert said.stdout.count("COMPLETED") == 2
    (report,) = (program.folder / "results/reports").glob("*/report.html")
    assert "loss" in report.read_text()
    runs = sorted((program.folder / "results").glob("here-*"))
    assert [arguments(run)["seed"] for run in runs] == [1, 2]


def test_a_failed_run_is_explained(program: Project) -> None:
    said = program.run("run", "python", "train.py", "--lr", "high", code=8)
    assert "invalid float value: 'high'" in said.stdout
    assert "why " in said.stdout


def test_ctrl_c_leaves_the_run_going(program: Project) -> None:
    process = forked.start(
        ["run", "python", "train.py", "--sleep"],
        env={**os.environ},
        folder=program.folder,
        program="clusterkit",
    )
    runs = program.folder / ".clusterkit/local/runs"
    program.until(lambda: list(runs.glob("*/out/arguments.json")))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (run,) = json.loads(program.run("status", "--json").stdout)["runs"]
    assert run["state"] == "RUNNING"
    program.run("cancel", "last", "--yes")
