"""build: the definition it renders, and how it calls Apptainer, which is played by a script on PATH."""

import os
import stat
from pathlib import Path

import pytest

from clusterkit.verbs.build import BOOTSTRAPS, Request, definition
from tests.verbs.conftest import Project

# Plays Apptainer at the process boundary: the real one builds the same definition in tests/cluster.
FAKE = """#!/bin/sh
printf '%s\\n' "$@" >"$CALLED"
for last; do :; done
test -f "$last" && test -f install.sh && test -f requirements.txt && test -f constraints.txt || exit 9
test -z "$FAIL" || exit 1
while [ $# -gt 2 ]; do shift; done
echo image >"$1"
"""


@pytest.fixture
def apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "apptainer"
    program.write_text(FAKE)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    return tmp_path / "called"


@pytest.mark.parametrize("bootstrap", BOOTSTRAPS)
def test_every_bootstrap_has_a_definition(bootstrap: str) -> None:
    text = definition(Request(bootstrap, "base.sif" if bootstrap == "localimage" else None))
    assert text.startswith(f"Bootstrap: {bootstrap}\n")
    assert "{{" not in text
    assert "/opt/venv" in text


def test_print_builds_nothing(project: Project) -> None:
    assert "Bootstrap: docker" in project.run("build", "--print").stdout
    assert not list(project.folder.glob("*.sif"))


def test_it_builds_beside_all_inputs_and_publishes_by_rename(project: Project, apptainer: Path) -> None:
    project.run("build", "my image.sif")
    assert (project.folder / "my image.sif").read_text() == "image\n"
    assert "--fakeroot" in apptainer.read_text().splitlines()
    assert sorted(path.name for path in project.folder.glob("*.sif*")) == ["my image.sif"]


def test_an_existing_image_is_kept_without_force(project: Project, apptainer: Path) -> None:
    (project.folder / "a.sif").write_text("old")
    assert "--force" in project.run("build", "a.sif", code=6).stderr
    assert (project.folder / "a.sif").read_text() == "old"
    project.run("build", "a.sif", "--force")
    assert (project.folder / "a.sif").read_text() == "image\n"


def test_a_failed_build_leaves_no_image(
    project: Project, apptainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")
    assert "could not build" in project.run("build", "a.sif", code=6).stderr
    assert not list(project.folder.glob(".a.sif*"))


def test_wrong_input(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "docker" in project.run("build", "--bootstrap", "dokcer", code=1).stderr
    assert "--from" in project.run("build", "--bootstrap", "localimage", code=1).stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "--print" in project.run("build", code=6).stderr
