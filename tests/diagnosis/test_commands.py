"""The commands that are named as the next step can be typed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from clusterkit.backends.story import Subject, texts
from clusterkit.cli.app import app
from clusterkit.diagnosis import diagnose, parse_evidence
from clusterkit.diagnosis.collect import question
from clusterkit.probes import script
from tests.diagnosis.run_dirs import RECORDED

RUN = Subject("a", "7", "/no/run", "slurm")
COMMANDS: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.txt")), ids=lambda path: path.stem)
def test_the_next_command_exists_with_its_options(path: Any) -> None:
    words = shlex.split(diagnose(parse_evidence(path.read_text())).finding.next)
    if words[0] == "ssh":
        assert words[3] == "login"
        assert words[4] in ("scontrol", "sacctmgr", "sinfo", "squeue", "df", "ls")
        return
    assert words[0] == "clusterkit"
    assert words[1] in COMMANDS
    known = {option for parameter in COMMANDS[words[1]].params for option in parameter.opts}
    assert {word for word in words[2:] if word.startswith("-")} <= known | {"--help"}


def test_no_command_of_the_question_may_take_longer_than_ten_seconds(tmp_path: Path) -> None:
    """All of them together must end within the question's own limit, also where each one hangs."""
    timeout = tmp_path / "timeout"
    timeout.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/limits\nexit 124\n')
    timeout.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["sh"], input=script([question(RUN)]), capture_output=True, text=True, env=env)
    limits = (tmp_path / "limits").read_text().split()
    assert set(limits) == {"10"}
    assert len(limits) > 5
    told = {text.source: text.lines for text in texts(done.stdout)}
    assert "no answer within 10 s" in told["files"]
    assert "no answer within 10 s" in told["squeue"]
