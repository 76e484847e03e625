"""Virtual environments stay here, whatever they are called, and each is named once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshots.conftest import commit, git, taken

BASE = {"link", "pkg/a.py", "train me.sh"}


def environment(folder: Path, kind: str = "venv") -> None:
    """What `python -m venv` or conda leave, with a file that looks like a secret."""
    packages = folder / "lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (packages / "torch.py").write_text("x = 1\n")
    (packages / "cacert.pem").write_text("x")
    if kind == "venv":
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    else:
        (folder / "conda-meta").mkdir()
        (folder / "conda-meta/history").write_text("")


@pytest.mark.parametrize("how", ["no git", "untracked", "tracked", "nested repository", "half ignored"])
@pytest.mark.parametrize("kind", ["venv", "conda"])
def test_an_environment_stays_and_is_named_once(project: Path, how: str, kind: str) -> None:
    where = "sub/env" if how == "nested repository" else "my env"
    if how == "nested repository":
        (project / "sub").mkdir()
        (project / "sub/b.py").write_text("")
        commit(project / "sub")
    if how not in ("no git", "tracked"):
        commit(project)
    environment(project / where, kind)
    environment(project / where / "inner", kind)
    if how == "tracked":
        commit(project)
        (project / where / "lib/python3.12/site-packages/torch.py").write_text("x = 2\n")
    if how == "half ignored":
        (project / ".gitignore").write_text("pyvenv.cfg\nconda-meta\n")
        git(project, "add", ".gitignore")
        git(project, "commit", "-qm", "rules")
    snapshot = taken(project)
    assert set(snapshot.project.files) - {".gitignore", "sub/b.py"} == BASE
    assert snapshot.environments == (where,)
    assert snapshot.withheld == ()
    assert not snapshot.git.dirty or how == "nested repository"
    assert "torch" not in snapshot.git.diff


def test_an_ignored_or_excluded_environment_is_not_named(project: Path) -> None:
    (project / ".gitignore").write_text("/venv\n")
    commit(project)
    for name in ("venv", "other", ".venv"):
        environment(project / name)
    assert taken(project, "/other").environments == ()
    assert set(taken(project, "/other").project.files) == BASE | {".gitignore"}


def test_a_real_one_stays_too(project: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / "env"], check=True)
    (project / "env/.gitignore").unlink(missing_ok=True)  # Python 3.13 ignores it by itself
    assert taken(project).environments == ("env",)
    assert set(taken(project).project.files) == BASE


@pytest.mark.parametrize("repository", [False, True])
def test_a_link_to_one_stays(project: Path, tmp_path: Path, repository: bool) -> None:
    environment(tmp_path / "elsewhere")
    (project / "venv").symlink_to(tmp_path / "elsewhere")
    if repository:
        commit(project)
    snapshot = taken(project)
    assert (snapshot.environments, snapshot.outside) == (("venv",), ())
    assert set(snapshot.project.files) == BASE


def test_of_a_project_that_is_one_only_the_packages_stay(project: Path) -> None:
    environment(project)
    (project / "lib/mine.py").write_text("x")
    snapshot = taken(project)
    assert snapshot.environments == ("lib/python3.12",)
    assert set(snapshot.project.files) == BASE | {"pyvenv.cfg", "lib/mine.py"}


@pytest.mark.parametrize("repository", [False, True])
def test_include_sends_one_anyway(project: Path, repository: bool) -> None:
    environment(project / "fixtures/env")
    if repository:
        commit(project)
    snapshot = taken(project, include=("fixtures/env",))
    assert snapshot.environments == ()
    assert "fixtures/env/pyvenv.cfg" in snapshot.project.files
    assert taken(project, include=("*.pem",)).environments == ("fixtures/env",)
