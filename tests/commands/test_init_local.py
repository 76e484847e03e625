"""`clusterkit init --local`: a newcomer with a program and a laptop."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.survey import Choice
from clusterkit.commands.init_local import draft, init_local
from clusterkit.config.merge import added
from clusterkit.config.settings import Settings
from clusterkit.config.settings_file import checked
from clusterkit.hardware import Hardware
from tests.commands.conftest import Project


@pytest.fixture
def fresh(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with a program and no settings."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (project.folder / "clusterkit.toml").unlink()
    return project


def written(project: Project) -> dict[str, Any]:
    return tomllib.loads((project.folder / "clusterkit.toml").read_text())


@pytest.mark.slow
def test_a_first_run_without_any_cluster(fresh: Project) -> None:
    said = fresh.run("init", "--local")
    assert "program  python train.py" in said.stderr
    assert "clusterkit submit" in said.stderr
    settings = written(fresh)
    assert settings["project"] == {
        "default_cluster": "local",
        "default_profile": "here",
        "program": ["python", "train.py"],
    }
    assert settings["profiles"]["here"]["cpus"] == len(os.sched_getaffinity(0))
    run_id = fresh.submit("--", "0", "it's mine")
    fresh.ended(run_id)
    assert json.loads((fresh.run_dir(run_id) / "arguments.json").read_text()) == ["0", "it's mine"]
    again = fresh.run("init", "--local")
    assert "nothing to change" in again.stderr


@pytest.mark.slow
def test_a_file_that_is_there_keeps_every_line(fresh: Project) -> None:
    before = '# mine\n[project]\nname = "x"  # kept\ndefault_cluster = "uni"\n'
    before += '\n[clusters.uni]\nhost = "u"\nroot = "~/ck"\n'
    (fresh.folder / "clusterkit.toml").write_text(before)
    shown = fresh.run("init", "--local", "--dry-run").stdout
    assert "+program = " in shown
    assert (fresh.folder / "clusterkit.toml").read_text() == before
    refused = fresh.run("init", "--local", code=3).stderr
    assert "would change as shown" in refused
    fresh.run("init", "--local", "--yes")
    after = (fresh.folder / "clusterkit.toml").read_text()
    assert set(before.splitlines()) <= set(after.splitlines())
    assert written(fresh)["project"]["default_cluster"] == "uni"
    assert "here" in written(fresh)["profiles"]


def test_the_program_that_is_named_and_its_own_python(fresh: Project) -> None:
    python = fresh.folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    fresh.run("init", "--local", "--program", "bash -c 'echo $0'")
    assert written(fresh)["project"]["program"] == ["bash", "-c", "echo $0"]
    assert written(fresh)["clusters"]["local"] == {"python": str(python)}
    other = fresh.run("init", "--local", "--program", "train.py", code=3).stderr
    assert "already sets program = ['bash', '-c', 'echo $0']" in other


@pytest.mark.slow
def test_a_program_that_comes_later_gets_its_profile(fresh: Project) -> None:
    """The shipped demo, which was the default without a program, would train with the bundled trainer."""
    (fresh.folder / "train.py").rename(fresh.folder / "later")
    fresh.run("init", "--local", "--trainer")
    assert written(fresh)["project"]["default_profile"] == "local-demo"
    (fresh.folder / "later").rename(fresh.folder / "train.py")
    fresh.run("init", "--local", "--force")
    assert written(fresh)["project"]["default_profile"] == "here"
    assert "nothing to change" in fresh.run("init", "--local").stderr


def test_a_script_with_a_seed_option_gets_the_seed_of_each_run(fresh: Project) -> None:
    (fresh.folder / "train.py").write_text('parser.add_argument("--seed", type=int, default=0)\n')
    fresh.run("init", "--local")
    assert written(fresh)["project"]["program"] == ["python", "train.py", "--seed", "{seed}"]
    assert "nothing to change" in fresh.run("init", "--local").stderr
    script = fresh.run("submit", "--seed", "7", "--dry-run").stdout
    assert "--seed 7" in script


def test_a_program_that_is_named_gets_the_seed_of_each_run_too(fresh: Project) -> None:
    source = "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    seed: int = 1\n"
    (fresh.folder / "train.py").write_text(source)
    fresh.run("init", "--local", "--program", "python train.py --lr 0.1")
    assert written(fresh)["project"]["program"] == ["python", "train.py", "--lr", "0.1", "--seed", "{seed}"]
    again = fresh.run("init", "--local", "--program", "python train.py --lr 0.1")
    assert "nothing to change" in again.stderr


def test_a_folder_without_a_script_gets_no_settings_unless_the_trainer_is_asked_for(fresh: Project) -> None:
    (fresh.folder / "train.py").rename(fresh.folder / "test_train.py")
    refused = fresh.run("init", "--local", code=3).stderr
    assert "no Python script here, and none of train.py, main.py, run.py in a folder below" in refused
    assert "--program" in refused
    assert "`clusterkit init --local --trainer`" in refused
    assert not (fresh.folder / "clusterkit.toml").exists()
    assert "program  the bundled trainer" in fresh.run("init", "--local", "--trainer").stderr
    assert written(fresh)["project"] == {"default_cluster": "local", "default_profile": "local-demo"}


@pytest.mark.parametrize("names", [["a.py", "b.py"], ["main.py", "train.py"], ["x/run.py", "y/train.py"]])
@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_several_scripts_are_listed_and_none_is_taken(
    names: list[str], options: list[str], fresh: Project
) -> None:
    (fresh.folder / "train.py").unlink()
    for name in names:
        (fresh.folder / name).parent.mkdir(exist_ok=True)
        (fresh.folder / name).touch()
    refused = fresh.run("init", "--local", *options, code=3).stderr
    assert all(name in refused.partition("next:")[0] for name in names)
    assert "clusterkit init --local --program " in refused
    assert not (fresh.folder / "clusterkit.toml").exists()


def test_several_scripts_are_asked_for_on_a_terminal(fresh: Project) -> None:
    (fresh.folder / "train.py").unlink()
    (fresh.folder / "a.py").touch()
    (fresh.folder / "b.py").write_text('parser.add_argument("--seed", type=int)\n')
    asked: list[Choice] = []

    def choose(choice: Choice) -> str:
        asked.append(choice)
        return "b.py"

    proposal = init_local(fresh.folder / "clusterkit.toml", None, choose=choose)
    assert [option.value for option in asked[0].options] == ["a.py", "b.py"]
    assert proposal.settings.project.program == ("python", "b.py", "--seed", "{seed}")


def test_the_only_script_of_a_folder_below_is_the_program(fresh: Project) -> None:
    (fresh.folder / "scripts").mkdir()
    (fresh.folder / "train.py").rename(fresh.folder / "scripts" / "train.py")
    fresh.run("init", "--local")
    assert written(fresh)["project"]["program"] == ["python", "scripts/train.py"]


def test_the_users_own_default_cluster_stays_the_default(
    fresh: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fresh.folder.parent / "own" / "clusterkit" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[project]\ndefault_cluster = "uni"\n[clusters.uni]\nhost = "u"\nroot = "~/ck"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own.parent.parent))
    assert "clusterkit submit --cluster local" in fresh.run("init", "--local").stderr
    assert "default_cluster" not in written(fresh)["project"]


def test_what_does_not_go_together(fresh: Project) -> None:
    assert "--trainer goes with --local" in fresh.run("init", "uni", "--trainer", code=3).stderr
    both = fresh.run("init", "--local", "--trainer", "--program", "x", code=3).stderr
    assert "--trainer and --program exclude each other" in both
    assert "--program goes with --local" in fresh.run("init", "uni", "--program", "x", code=3).stderr
    assert "--local sets up this machine" in fresh.run("init", "uni", "--local", code=3).stderr


@pytest.mark.parametrize("gpus", [None, (), (8 << 30,)])
@pytest.mark.parametrize("program", [None, ["python", "my train.py"]])
def test_the_draft_is_valid_and_added_once(
    gpus: tuple[int, ...] | None, program: list[str] | None, tmp_path: Path
) -> None:
    here = draft(Hardware(8, 16 << 30, gpus, "NVIDIA GeForce RTX 4060"), program, "/opt/it's/python")
    text = added("", here.project, here.tables)
    settings: Settings = checked(tmp_path / "clusterkit.toml", text)
    assert settings.profile().name == ("here" if program else "local-demo")
    assert (settings.profile().gpu == "rtx4060") is bool(program and gpus)
    assert added(text, here.project, here.tables) == text
