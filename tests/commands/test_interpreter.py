"""Which Python `python` of a program is on this machine: the user's, not clusterkit's."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest

from clusterkit.config.settings import load_settings
from clusterkit.submit.own_program import with_program_python
from tests.commands.conftest import Project

PROGRAM = ("python", "train.py")


@pytest.fixture
def prefix(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A program that prints its environment, typed in a shell where none is active."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (project.folder / "train.py").write_text("import sys\nprint('prefix', sys.prefix)\n")
    return project


def environment(folder: Path) -> Path:
    venv.create(folder, symlinks=True)
    return folder


def ran_in(project: Project) -> str:
    run_id = project.submit()
    project.ended(run_id)
    return project.run("logs", run_id).stdout.partition("prefix ")[2].split("\n")[0]


@pytest.mark.slow
def test_python_is_the_first_on_path(
    prefix: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = environment(tmp_path / "mine")
    monkeypatch.setenv("PATH", f"{mine}/bin{os.pathsep}{os.environ['PATH']}")
    assert f"python      {mine}/bin/python\n" in prefix.run("submit", "--dry-run").stdout
    assert ran_in(prefix) == str(mine)


@pytest.mark.slow
def test_python_of_the_project_s_environment_comes_before_that_on_path(prefix: Project) -> None:
    mine = environment(prefix.folder / ".venv")
    assert ran_in(prefix) == str(mine)


@pytest.mark.slow
def test_python_in_the_settings_comes_before_all(prefix: Project, tmp_path: Path) -> None:
    environment(prefix.folder / ".venv")
    other = environment(tmp_path / "other")
    prefix.add(f'\n[clusters.local]\npython = "{other}/bin/python"\n')
    assert ran_in(prefix) == str(other)


def test_python_is_python3_where_path_has_no_other(
    prefix: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    local = load_settings(config=prefix.folder / "clusterkit.toml").cluster("local")
    found = with_program_python(local, PROGRAM, prefix.folder)
    assert found.interpreter == str(tmp_path / "bin" / "python3")
    shutil.rmtree(tmp_path / "bin")
    assert with_program_python(local, PROGRAM, prefix.folder).interpreter == sys.executable


@pytest.mark.parametrize("argv", [("python", "-m", "trainer", "train"), ("sh", "run.sh")])
def test_what_is_no_python_program_of_the_user_starts_as_before(
    argv: tuple[str, ...], prefix: Project
) -> None:
    (prefix.folder / ".venv" / "bin").mkdir(parents=True)
    (prefix.folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    local = load_settings(config=prefix.folder / "clusterkit.toml").cluster("local")
    assert with_program_python(local, argv, prefix.folder).interpreter == sys.executable
    assert with_program_python(local, PROGRAM, prefix.folder).interpreter != sys.executable
