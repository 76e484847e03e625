"""Work folders go away with their process, and folders of results are ignored by git and private."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.folders import is_held, make_ignored, sweep, work_folder

HOLD = """
import sys, pathlib
from clusterkit.folders import work_folder
with work_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "large").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_work_folder_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    sweep(tmp_path / "nothing there")
    with work_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        sweep(tmp_path)
        assert folder.is_dir()
    assert list((tmp_path / "work").iterdir()) == []


def test_what_a_killed_process_has_left_is_swept_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    held = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    killed, living = held
    folders = [Path(process.stdout.readline().strip()) for process in held if process.stdout]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert [is_held(tmp_path, folder.name) for folder in folders] == [False, True]
    sweep(tmp_path)
    assert not is_held(tmp_path, folders[0].name)
    assert [folder.is_dir() for folder in folders] == [False, True]
    living.communicate()
    assert not folders[1].exists()


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
