"""How doctor waits for the answer of its job, on the login node."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clusterkit.checkup.examine_nodes import LOOK


def look(folder: Path, how: str) -> str:
    """What it says within a second."""
    argv = ["sh", "-c", LOOK, "sh", str(folder), "1", how]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_there_is_no_answer_yet(tmp_path: Path) -> None:
    (tmp_path / "answer.part").write_text("half of it")
    assert look(tmp_path, "wait") == ""


def test_of_a_job_that_was_killed_there_is_what_it_had_written(tmp_path: Path) -> None:
    (tmp_path / "answer.part").write_text("half of it")
    said = look(tmp_path, "last")
    assert said.startswith("seen ")
    assert said.endswith("half of it")
    assert look(tmp_path, "wait").endswith("half of it")
