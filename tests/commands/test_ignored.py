"""Folders that git ignores by themselves."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from clusterkit.folders import make_ignored
from tests.commands.conftest import Project
from tests.results.run_dirs import make_run_dir


def test_a_made_folder_is_private_and_unknown_to_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    make_ignored(tmp_path / "a" / "results")
    (tmp_path / "a" / "results" / "curves.png").touch()
    assert stat.S_IMODE((tmp_path / "a" / "results").stat().st_mode) == 0o700
    status = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(status, check=True, capture_output=True).stdout == b""


@pytest.mark.parametrize("own", [None, "!keep\n"])
def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path, own: str | None) -> None:
    if own is not None:
        (tmp_path / ".gitignore").write_text(own)
    make_ignored(tmp_path)
    make_ignored(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([own] if own else [])


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(FileExistsError):
        make_ignored(tmp_path / "results")


@pytest.mark.slow
def test_results_are_not_committed_whichever_command_made_them(project: Project, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", project.folder], check=True)
    run_id = project.submit("--", "0")
    project.ended(run_id)
    elsewhere = [str(make_run_dir(tmp_path, f"demo-{number}")) for number in (1, 2)]
    for made_by in (["sync-results", run_id], ["export", run_id], ["report", *elsewhere]):
        shutil.rmtree(project.folder / "results", ignore_errors=True)
        project.run(*made_by)
        assert any((project.folder / "results").glob("[!.]*"))
        subprocess.run(["git", "-C", project.folder, "add", "-A"], check=True)
        listed = subprocess.run(
            ["git", "-C", project.folder, "ls-files"], check=True, capture_output=True, text=True
        ).stdout.split()
        assert listed == ["clusterkit.toml", "train.py"], made_by
