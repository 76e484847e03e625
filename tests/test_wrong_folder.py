"""A command about runs, typed where there can be none, or where nobody can say whether there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import forked


def typed(folder: Path, *words: str) -> tuple[int, str]:
    env = {**os.environ, "HOME": str(folder.parent), "XDG_CONFIG_HOME": ""}
    done = forked.run(words, folder=folder, env=env)
    return done.returncode, done.stdout + done.stderr


COMMANDS = (
    "status,status --watch,status --json,why,logs,watch --once,shell x,top --once,cancel x,resume,"
    "sync-results,report,report --advice,diff a b,export,rerun x,clean --dry-run,evaluate,play"
)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.split(","))
def test_a_folder_without_a_project(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    code, said = typed(folder, *command.split())
    assert code == 3, said
    assert f"{folder}: no project: no clusterkit.toml" in said
    assert "next:  `cd` into the project; or `clusterkit init`" in said
    assert not list(folder.iterdir())


def test_a_folder_below_one_where_runs_were_submitted(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "code"
    folder.mkdir(parents=True)
    (folder.parent / ".clusterkit").mkdir()
    code, said = typed(folder, "status")
    assert code == 3
    assert f"`cd {folder.parent}`" in said
    assert typed(folder.parent, "status")[0] == 0


def test_a_cluster_without_an_answer_may_have_runs(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "clusterkit.toml").write_text(
        '[project]\ndefault_cluster = "far"\n[clusters.far]\nhost = "nowhere.invalid"\nroot = "/w"\n'
    )
    for words in (["status"], ["status", "--json"]):
        code, said = typed(folder, *words)
        assert code == 4, said
        assert "no run is known here, and far gives no answer" in said
        assert "no runs yet" not in said
