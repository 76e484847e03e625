"""Words after -- that name a program are refused, with the lines that set it."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from clusterkit.errors import ConfigError
from clusterkit.submit.own_program import check_arguments
from tests.commands.conftest import Project


@pytest.mark.parametrize(
    ("words", "program", "rest"),
    [
        ("python train.py", ["python", "train.py"], ""),
        ("python3 train.py --lr 0.3", ["python3", "train.py"], "-- --lr 0.3"),
        ("train.py --lr 0.3", ["python", "train.py"], "-- --lr 0.3"),
        ("python -u -m agent.train --lr 1", ["python", "-u", "-m", "agent.train"], "-- --lr 1"),
        ("absent.sh", ["bash", "absent.sh"], ""),
        ("./bin/simulate 3", ["./bin/simulate"], "-- 3"),
        ("--lr 0.3 python train.py", ["python", "train.py"], "-- --lr 0.3"),
        ("uv run python 'my train.py' -v", ["uv", "run", "python", "my train.py"], "-- -v"),
    ],
)
def test_a_program_without_a_setting(words: str, program: list[str], rest: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/simulate").touch()
    with pytest.raises(ConfigError, match="this project sets none") as told:
        check_arguments(tmp_path, shlex.split(words), None)
    hint, _, lines = (told.value.hint or "").partition("\n\n")
    assert tomllib.loads(lines) == {"project": {"program": program}}
    assert (f"`{rest}`" in hint) if rest else ("`--" not in hint)


@pytest.mark.parametrize(
    "words",
    ["", "--num-envs 4", "--init-from model.py", "--set environment=train.py", "--note {python}", "--lr=1 7"],
)
def test_arguments_of_the_trainer_pass(words: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    check_arguments(tmp_path, shlex.split(words), None)


def test_lines_for_a_file_that_has_the_table(tmp_path: Path) -> None:
    (tmp_path / "clusterkit.toml").write_text('[project]\nname = "x"\n')
    with pytest.raises(ConfigError) as told:
        check_arguments(tmp_path, ["train.py"], None)
    assert (told.value.hint or "").endswith('\n\nprogram = ["python", "train.py"]')


def test_a_program_that_is_set_already_is_not_named_again(tmp_path: Path) -> None:
    own = ["python", "train.py", "--out", "x"]
    check_arguments(tmp_path, ["config.py", "python"], own)
    with pytest.raises(ConfigError, match="after -- repeats the program") as told:
        check_arguments(tmp_path, ["python", "train.py", "--lr", "1"], own)
    assert "`-- --lr 1`" in (told.value.hint or "")


def test_the_lines_to_write_give_the_program_its_seed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("parser.add_argument('--seed', type=int)\n")
    for words, program in (
        (("python", "train.py"), '["python", "train.py", "--seed", "{seed}"]'),
        (("python", "train.py", "--seed", "3"), '["python", "train.py"]'),
    ):
        with pytest.raises(ConfigError) as told:
            check_arguments(tmp_path, words, None)
        assert (told.value.hint or "").endswith(f"program = {program}")


@pytest.mark.parametrize("command", ["submit", "plan", "submit --dry-run", "submit --seeds 1,2"])
def test_every_command_that_takes_arguments_refuses(project: Project, command: str) -> None:
    settings = project.folder / "clusterkit.toml"
    settings.write_text('[project]\nname = "demo"\n')
    said = project.run(*command.split(), "--", "python", "train.py", code=3).stderr
    assert "`python train.py` is a program" in said
    assert 'program = ["python", "train.py"]' in said
