"""How doctor waits for its job on the login node: once a second, and no more when it is gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clusterkit.commands.doctor_job import LOOK
from tests.survey.tools import program


def look(folder: Path, rows: str) -> tuple[str, int]:
    """What it says within a minute, and how often it asked squeue."""
    program(folder, "squeue", f"echo asked >>{folder}/asked; printf '{rows}'")
    argv = ["sh", "-c", LOOK, "sh", str(folder / "job"), "12", "60"]
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    said = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    return said, (folder / "asked").read_text().count("asked")


@pytest.mark.parametrize(
    ("rows", "state"), [("", "state \n"), ("1|RUNNING|None|n\\n12|FAILED|None|n\\n", "FAILED")]
)
def test_a_job_that_is_gone_is_not_asked_about_again(tmp_path: Path, rows: str, state: str) -> None:
    (tmp_path / "job").mkdir()
    said, asked = look(tmp_path, rows)
    assert state in said
    assert asked == 1


def test_of_a_job_that_was_killed_there_is_what_it_had_written(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/answer.part").write_text("half of it")
    said, _ = look(tmp_path, "")
    assert said.startswith("seen ")
    assert said.endswith("half of it")
