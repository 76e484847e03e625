"""What commands mean where a person names no run, or one of two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cli.app import load
from clusterkit.cli.diff import pair
from clusterkit.errors import RunError
from clusterkit.runs.ledger import Ledger
from tests.runs.test_ledger import run


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        ledger.add_all([run("first-a", "1"), run("second-b", "2"), run("third-c", "3")])
        yield ledger


@pytest.mark.parametrize(
    ("named", "compared"),
    [
        ([], ("second-b", "third-c")),
        (["last"], ("second-b", "third-c")),
        (["second"], ("first-a", "second-b")),
        (["third-c", "first-a"], ("third-c", "first-a")),
    ],
)
def test_diff_compares_a_run_with_the_one_before_it(
    ledger: Ledger, named: list[str], compared: tuple[str, str]
) -> None:
    assert pair(ledger, named) == compared


def test_diff_of_the_first_run_says_that_none_was_before_it(ledger: Ledger) -> None:
    with pytest.raises(RunError, match="no run was submitted before first-a") as caught:
        pair(ledger, ["first"])
    assert caught.value.hint == "name the run to compare it with: `clusterkit diff first-a RUN`"


@pytest.mark.parametrize(("count", "words"), [(0, "no runs"), (1, "1 run")])
def test_diff_where_there_are_not_two_runs_says_so(tmp_path: Path, count: int, words: str) -> None:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        ledger.add_all([run("first-a", "1")][:count])
        with pytest.raises(RunError, match=f"(?m)this project has {words}$"):
            pair(ledger, [])


@pytest.mark.parametrize(
    ("line", "name", "command"),
    [
        ([], "last", None),
        (["--"], "last", None),
        (["mine"], "mine", None),
        (["--", "nvidia-smi"], "last", ["nvidia-smi"]),
        (["--", "nvidia-smi", "-l", "1"], "last", ["nvidia-smi", "-l", "1"]),
        (["mine", "--", "sh", "-c", "ls -l"], "mine", ["sh", "-c", "ls -l"]),
        (["--config", "a.toml", "--", "ls", "--", "x"], "last", ["ls", "--", "x"]),
    ],
)
def test_shell_takes_the_newest_run_if_none_is_named(line: list[str], name: str, command: Any) -> None:
    params = load("shell").make_context("shell", line).params
    assert (params["name"], list(params["command"] or ()) or None) == (name, command)
