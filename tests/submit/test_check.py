"""What would fail only after its turn had come is refused when it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ConfigError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.snapshots import Tree
from clusterkit.submit.check import check_after, check_script
from clusterkit.submit.plan import After

HERE = Cluster(name="here", host="node", root="/r", container="none")
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


@pytest.mark.parametrize("way", ["array", "chain"])
def test_a_run_of_many_jobs_is_waited_for_only_when_it_has_completed(tmp_path: Path, way: str) -> None:
    for state, waits in (("RUNNING", False), ("COMPLETED", True)):
        run = LedgerRun("r-1", "here", "r", "p", "", 0, "7", "", "/r/runs/r-1", 0, state, until_done=way)
        with Ledger(tmp_path / state) as ledger:
            ledger.add(run)
            if waits:
                check_after(ledger, HERE, [After("r-1")], ())
                continue
            with pytest.raises(ConfigError, match="it continues in further jobs"):
                check_after(ledger, HERE, [After("r-1")], ())
