"""Whose code a model's environment may run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.envs.own_module import refuse_foreign
from trainer.errors import UsageError

EVIL = "raise SystemExit('somebody else is in control')\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with code of the user's own, whose results somebody else has filled."""
    folder = tmp_path / "project"
    for name in ("mine.py", "package/__init__.py", "package/inner.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(EVIL)  # to look must not run even this
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    (folder / "package" / "new.py").write_text(EVIL)
    (folder / "draft.py").write_text(EVIL)
    run = folder / "results" / "run-1"
    (run / "checkpoints").mkdir(parents=True)
    (run / "evil.py").write_text(EVIL)
    (folder / "link").symlink_to(run)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def check(project: Path, environment: object, *, named: str | None = None, pulled: bool = True) -> None:
    model = project / "results" / "run-1" / "checkpoints" / "final_model.pt"
    folders = [project / "results"] if pulled else []
    refuse_foreign(model, {"environment": environment}, named=named, pulled=folders)


def test_registered_installed_and_tracked_environments_are_accepted(project: Path) -> None:
    refuse_foreign(project / "model.pt", {"tasks": "MT10"}, named=None, pulled=[])
    for name in ("Pendulum-v1", "gymnasium:Pendulum-v1", "gymnasium.envs.box2d:X-v0", "mine:X-v0"):
        check(project, name)
    for name in ("package.inner:X-v0", "sys:X-v0", "nowhere.at.all:X-v0"):
        check(project, name)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("environment", ["results.run-1.evil:X-v0", "link.evil:X-v0"])
def test_code_beside_the_model_is_never_run(
    project: Path, environment: str, pulled: bool, named: bool
) -> None:
    with pytest.raises(UsageError, match=r"code that came with results: .*/results/run-1"):
        check(project, environment, named=environment if named else None, pulled=pulled)


def test_a_folder_of_the_same_name_elsewhere_hides_no_code(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere" / "results").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"code that came with results: .*/results/run-1"):
        check(project, "results.run-1.evil:X-v0")


@pytest.mark.parametrize("environment", ["draft:X-v0", "package.new:X-v0"])
def test_untracked_code_has_to_be_named(project: Path, environment: str) -> None:
    with pytest.raises(UsageError, match="neither installed nor tracked") as caught:
        check(project, environment)
    assert caught.value.hint == f"only if you trust that code: --environment {environment}"
    check(project, environment, named=environment)
    with pytest.raises(UsageError, match="not in other:X-v0"):
        check(project, environment, named="other:X-v0")


@pytest.mark.parametrize("path", ["", ".", "/nowhere:", "{here}"])
def test_a_folder_of_pythonpath_is_no_installation(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", path.format(here=project))
    monkeypatch.syspath_prepend(str(project))
    with pytest.raises(UsageError, match="neither installed nor tracked"):
        check(project, "draft:X-v0")


def test_a_repository_that_came_with_the_model_tracks_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / "results" / "run-1"
    subprocess.run(["git", "init", "-q"], cwd=run, check=True)
    subprocess.run(["git", "add", "."], cwd=run, check=True)
    (run / "hook.sh").write_text(f"#!/bin/sh\ntouch {project}/ran\n")
    (run / "hook.sh").chmod(0o700)
    subprocess.run(["git", "config", "core.fsmonitor", str(run / "hook.sh")], cwd=run, check=True)
    monkeypatch.chdir(run)
    with pytest.raises(UsageError, match="neither installed nor tracked"):
        check(project, "evil:X-v0", pulled=False)
    with pytest.raises(UsageError, match="code that came with results"):
        check(project, "evil:X-v0", named="evil:X-v0")
    step = run / "checkpoints" / "step-1" / "model.pt"  # a file of a checkpoint is of the same run
    with pytest.raises(UsageError, match="neither installed nor tracked"):
        refuse_foreign(step, {"environment": "evil:X-v0"}, named=None, pulled=[])
    assert not os.path.lexists(project / "ran")


def test_an_environment_that_is_no_name_is_refused(project: Path) -> None:
    with pytest.raises(UsageError, match="is not a name"):
        check(project, ["results.run-1.evil:X-v0"])


def test_a_program_is_no_environment(project: Path) -> None:
    with pytest.raises(UsageError, match="is a program"):
        check(project, "unittest.__main__:X-v0")


def test_an_argument_of_a_models_environment_that_may_name_code_or_a_file_is_refused(project: Path) -> None:
    for name in ("Meta-World/MT1?env_name=reach-v3", "mine:X-v0?n=4&rate=0.1&on=true&list=[1, 2]"):
        check(project, name)
    for argument in ("draft:X-v0", "package.new", "../evil.xml", "/evil"):
        for text in (f"a={argument}", f'a={{"b": ["{argument}"]}}', f'a={{"{argument}": 1}}'):
            name = f"GymV21Environment-v0?{text}"
            with pytest.raises(UsageError, match="an argument that may name code or a file"):
                check(project, name)
            check(project, name, named=name)
    with pytest.raises(UsageError, match="neither installed nor tracked"):
        check(project, "draft:X-v0?n=4")
