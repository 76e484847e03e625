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
    "submit,submit --dry-run,submit -p local-demo,plan,deploy,search x --space lr=1;2,tune,rehearse,"
    "dev --keep,status,status --watch,status --json,why,logs,curves x --once,shell x,top --once,"
    "cancel x,resume,sync-results,report,report --advice,diff a b,export,rerun x,"
    "storage clean --dry-run,evaluate,play"
)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.split(","))
def test_a_folder_without_a_project(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "train.py").touch()
    code, said = typed(folder, *command.replace(";", ",").split())
    assert code == 3, said
    assert f"{folder}: no project: no clusterkit.toml" in said
    assert "next:  `cd` into the project; or `clusterkit init --local` begins one here" in said
    assert [path.name for path in folder.iterdir()] == ["train.py"]


@pytest.mark.parametrize("command", ["submit", "plan"])
def test_the_users_own_settings_make_no_folder_a_project(command: str, tmp_path: Path) -> None:
    """Not even the home folder, all of which would be sent."""
    (tmp_path / ".config" / "clusterkit").mkdir(parents=True)
    own = '[project]\ndefault_profile = "check"\n'
    (tmp_path / ".config" / "clusterkit" / "config.toml").write_text(own)
    done = forked.run(
        [command], folder=tmp_path, env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    )
    assert done.returncode == 3
    assert f"{tmp_path}: no project: no clusterkit.toml here or above" in done.stderr


@pytest.mark.parametrize("command", ["submit --dry-run", "plan", "search x --space lr=1,2"])
def test_settings_that_name_no_program_start_none(command: str, tmp_path: Path) -> None:
    """The bundled trainer is nobody's program unless a profile of its is named."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "clusterkit.toml").write_text('[profiles.mine]\ntime = "1m"\nprogram = ["sh", "train.py"]\n')
    code, said = typed(folder, *command.split())
    assert code == 3, said
    assert "nothing says what to run" in said
    assert "`clusterkit init --local` finds your program" in said


def test_a_profile_or_recipe_that_is_named_is_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "clusterkit.toml").touch()
    for words in (["-p", "local-demo"], ["--sweep", "profile=local-demo"]):
        code, said = typed(folder, "submit", "--dry-run", *words)
        assert code == 0, said


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
