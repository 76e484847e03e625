"""A wrong command line: one error style, and what to write instead; a script gets it as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import typer

from clusterkit.cli.app import app
from clusterkit.cli.usage import CommandLineError, usage_error
from tests import forked


def refused(*words: str) -> CommandLineError:
    group = typer.main.get_command(app)
    try:
        with group.make_context("clusterkit", [*words]) as context:
            group.invoke(context)
    except Exception as error:
        return usage_error(error, words)
    raise AssertionError("it is right")


@pytest.mark.parametrize(
    ("line", "cause", "hint"),
    [
        (
            "submit --lr 0.3 --seed 2 --x=1 y",
            "`clusterkit submit` has no option --lr",
            "an option of your program stands after `--`: `clusterkit submit --seed 2 y -- --lr 0.3 --x=1`",
        ),
        (
            "submit --yes --lr 0.3 -- --b 2",
            "`clusterkit submit` has no option --lr",
            "an option of your program stands after `--`: `clusterkit submit --yes -- --lr 0.3 --b 2`",
        ),
        (
            "submit --gpus 1",
            "`clusterkit submit` has no option --gpus",
            "set `gpus` in [profiles.NAME] of clusterkit.toml; or once, for a cluster: `--sbatch gpus=1`",
        ),
        (
            "tune --memory 4G",
            "`clusterkit tune` has no option --memory",
            "set `memory` in [profiles.NAME] of clusterkit.toml",
        ),
        (
            "submit --qos long",
            "`clusterkit submit` has no option --qos",
            "set `qos` in [clusters.NAME] of clusterkit.toml; or once: `--sbatch qos=NAME`",
        ),
        ("submit --sed 3", "`clusterkit submit` has no option --sed", "did you mean --seed?"),
        ("why --lr 1", "`clusterkit why` has no option --lr", "`clusterkit why -h` shows its options"),
        (
            "submit --seed x",
            "--seed: input should be a valid integer",
            "`clusterkit submit -h` shows what it takes",
        ),
        (
            "stats",
            "no such command 'stats'. Did you mean 'status'?",
            "`clusterkit -h` shows what it takes",
        ),
        ("submit --seed", "option '--seed' requires an argument", "`clusterkit -h` shows what it takes"),
    ],
)
def test_a_wrong_command_line_says_what_to_write(line: str, cause: str, hint: str) -> None:
    error = refused(*line.split())
    assert (error.cause, error.hint, error.exit_code) == (cause, hint, 2)


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(words, folder=folder, env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": ""})


@pytest.mark.parametrize(
    ("words", "code"), [(["status", "--json", "--lr", "3"], 2), (["why", "nosuch", "--json"], 8)]
)
def test_an_error_is_a_document_of_its_own(tmp_path: Path, words: list[str], code: int) -> None:
    (tmp_path / "clusterkit.toml").touch()
    done = typed(tmp_path, *words)
    said = json.loads(done.stdout)
    assert done.returncode == said["code"] == code
    assert done.stderr == f"error: {said['error']}\nnext:  {said['next']}\n"


def test_a_program_s_own_json_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "clusterkit.toml").touch()
    assert typed(tmp_path, "submit", "--", "--json").stdout == ""


@pytest.mark.parametrize("command", ["profiles", "storage list"])
def test_a_settings_file_may_be_named_before_the_command(tmp_path: Path, command: str) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        '[profiles.theirs]\ntime = "1h"\n[clusters.far]\nhost = "nowhere.invalid"\nroot = "/w"\n'
    )
    words = command.split() + (["--cluster", "far"] if "storage" in command else [])
    given = ("--config", str(other))
    before, behind = typed(tmp_path, *given, *words), typed(tmp_path, *words, *given)
    assert vars(before) | {"args": ()} == vars(behind) | {"args": ()}
    assert "theirs" in before.stdout or "nowhere.invalid" in before.stderr


def test_a_page_is_shown(tmp_path: Path) -> None:
    assert "own-project      Your own program\n" in typed(tmp_path, "docs").stdout
    assert typed(tmp_path, "docs", "own-project").stdout.startswith("# Your own program\n")
    assert "did you mean own-project? available: " in typed(tmp_path, "docs", "own-projct").stderr
