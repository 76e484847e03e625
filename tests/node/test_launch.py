"""The launcher: what the program gets, and what is said when it cannot start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node.launch import says_done
from clusterkit.runs.program import names_trainer
from tests.backends.runs import LAUNCHER

TELL = (
    "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.executable]))"
)


def launch(run_dir: Path, run: dict[str, Any] | str, **env: str) -> subprocess.CompletedProcess[str]:
    (run_dir / "work").mkdir(exist_ok=True)
    document = run if isinstance(run, str) else json.dumps(run)
    (run_dir / "run.json").write_text(document)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, LAUNCHER, run_dir], capture_output=True, text=True, env=environment | env
    )


def test_environment_of_the_program(tmp_path: Path) -> None:
    run = {
        "run_id": "r-1",
        "argv": ["python", "-c", TELL, "a b", ""],
        "env": {"OMP_NUM_THREADS": 2, "X": "é\n'"},
        "python_path": ["/bundle"],
    }
    done = launch(tmp_path, run, CLUSTERKIT_ATTEMPT="3", CLUSTERKIT_SCRATCH=str(tmp_path), PYTHONPATH="/site")
    argv, env, cwd, interpreter = json.loads(done.stdout)
    assert (argv, cwd, interpreter) == (["a b", ""], str(tmp_path / "work"), sys.executable)
    wanted = {
        "OMP_NUM_THREADS": "2",
        "X": "é\n'",
        "CLUSTERKIT_RUN_DIR": str(tmp_path),
        "CLUSTERKIT_RUN_ID": "r-1",
        "CLUSTERKIT_ATTEMPT": "3",
        "CLUSTERKIT_SCRATCH": str(tmp_path),
        "PYTHONPATH": f"/bundle:/site:{tmp_path}/lib",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert wanted.items() <= env.items()
    assert (tmp_path / "launched").exists()
    assert (tmp_path / "pid").read_text().isdigit()


BUNDLED = (
    "import json, os, sys; print(json.dumps([__file__, sys.argv[1:], sys.path, os.environ['PYTHONPATH']]))"
)


@pytest.fixture
def two_trainers(tmp_path: Path) -> dict[str, Any]:
    """A run whose project has a `trainer` of its own; each of the two says which one it is."""
    for folder in ("bundle", "work"):
        package = tmp_path / folder / "trainer"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(BUNDLED)
    (tmp_path / "work" / "train.py").write_text("import trainer, runpy; runpy.run_module('trainer.__main__')")
    return {"python_path": [str(tmp_path / "bundle")], "env": {}}


@pytest.mark.parametrize(
    ("argv", "whose"),
    [
        (["python", "-m", "trainer", "train", "--seed", "1"], "bundle"),
        (["python", "-m", "trainer.__main__"], "work"),
        (["python", "train.py"], "work"),
        (["sh", "-c", f"cd / && exec {sys.executable} -m trainer check"], "bundle"),
    ],
)
def test_the_trainer_of_a_run_is_the_bundled_one_only_where_the_program_is(
    tmp_path: Path, two_trainers: dict[str, Any], argv: list[str], whose: str
) -> None:
    if not names_trainer(argv):
        two_trainers["python_path"] = []
    done = launch(tmp_path, {**two_trainers, "argv": argv})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == str(tmp_path / whose / "trainer" / "__main__.py")


def test_the_trainer_finds_the_projects_modules_after_its_own(
    tmp_path: Path, two_trainers: dict[str, Any]
) -> None:
    argv = ["python", "-m", "trainer", "train", "--seed", "1"]
    done = launch(tmp_path, {**two_trainers, "argv": argv}, PYTHONPATH="/site")
    _, arguments, path, _ = json.loads(done.stdout)
    assert arguments == argv[3:]
    assert path[:3] == [str(tmp_path / "bundle"), str(tmp_path / "work"), "/site"]


def test_another_program_in_the_place_changes_no_word_about_the_runs_own(tmp_path: Path) -> None:
    """After `clusterkit shell` exit code 0 of the trainer was taken for its word again."""
    (tmp_path / "launched").write_text("says-done\n")
    (tmp_path / "run.json").write_text(json.dumps({"argv": ["true"]}))
    for program in (["true"], ["python", "-m", "trainer", "train", "--recipe", "none"]):
        command = [sys.executable, str(LAUNCHER), str(tmp_path), *program]
        subprocess.run(command, env={**os.environ, "CLUSTERKIT_SCRATCH": str(tmp_path)}, capture_output=True)
        assert (tmp_path / "launched").read_text() == "says-done\n"
        (tmp_path / "launched").write_text("")
        subprocess.run(command, env={**os.environ, "CLUSTERKIT_SCRATCH": str(tmp_path)}, capture_output=True)
        assert (tmp_path / "launched").read_text() == ""
        (tmp_path / "launched").write_text("says-done\n")


def test_run_json_may_not_change_where_the_run_lies(tmp_path: Path) -> None:
    run = {"argv": ["python", "-c", TELL], "env": {"CLUSTERKIT_RUN_DIR": "/elsewhere"}}
    env = json.loads(launch(tmp_path, run).stdout)[1]
    assert env["CLUSTERKIT_RUN_DIR"] == str(tmp_path)


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        ("", 2, "cannot read"),
        ("{", 2, "cannot read"),
        ({"argv": []}, 2, "argv is empty"),
        ({}, 2, "'argv'"),
        ({"argv": ["no-such-program"]}, 127, "the program 'no-such-program' does not exist here"),
        (
            {"argv": ["./windows.sh"]},
            127,
            "the interpreter of './windows.sh', '/bin/sh\\r', does not exist here; ",
        ),
        ({"argv": ["./missing.sh"]}, 127, "the interpreter of './missing.sh', '/no/sh', does not exist here"),
        ({"argv": ["/etc/passwd"]}, 126, "cannot start '/etc/passwd'"),
        ({"argv": ["true", "a\0b"]}, 126, "cannot start 'true'"),
    ],
)
def test_one_clear_line_when_it_cannot_start(tmp_path: Path, run: Any, code: int, words: str) -> None:
    (tmp_path / "work").mkdir()
    for name, text in (("windows.sh", "#!/bin/sh\r\nexit\r\n"), ("missing.sh", "#! /no/sh -e\nexit\n")):
        (tmp_path / "work" / name).write_text(text)
        (tmp_path / "work" / name).chmod(0o700)
    done = launch(tmp_path, run)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("python -m trainer train --recipe sac", True),
        ("python -m trainer train --recipe sac --run-dir=/x", False),
        ("python -m trainer train --recipe sac --seeds 1..3", True),
        ("python -m trainer bench --recipe sac", False),
        ("true", False),
    ],
)
def test_which_program_says_that_it_is_done(argv: str, says: bool) -> None:
    assert says_done(argv.split()) == says
