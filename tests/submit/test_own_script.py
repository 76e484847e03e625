"""A script that does not travel is named before a job has waited for its turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import ConfigError
from clusterkit.snapshots import Tree
from clusterkit.submit.check import check_script

FILES = ("data", "package/__main__.py", "run.sh", "train.py", "tools/simulate")


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py"],
        ["python3.12", "./train.py", "absent.py"],
        ["/opt/venv/bin/python", "package"],
        ["bash", "run.sh"],
        ["bash", "-c", "absent.py"],
        ["python", "-m", "absent"],
        ["python"],
        ["python", "/opt/absent.py"],
        ["python", "../absent.py"],
        ["python", "data/absent.py"],  # `data` is a link, which may lead there
        ["./tools/simulate"],
        ["absent.py"],  # looked up on PATH
    ],
)
def test_what_may_be_there(argv: list[str]) -> None:
    check_script(Tree(Path("/nowhere"), FILES), argv)


@pytest.mark.parametrize("argv", [["python", "trian.py"], ["./tools/simulat"], ["sh", "src/run.sh"]])
def test_what_is_not(argv: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not in"):
        check_script(Tree(tmp_path, FILES), argv)
    check_script(Tree(tmp_path, ()), argv)


def test_the_nearest_name_and_what_keeps_a_file_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean train\.py\?"):
        check_script(Tree(tmp_path, FILES), ["python", "trian.py"])
    (tmp_path / "mine.py").touch()
    with pytest.raises(ConfigError, match="would not be uploaded") as told:
        check_script(Tree(tmp_path, FILES), ["python", "mine.py"])
    assert '"/mine.py"' in (told.value.hint or "")
