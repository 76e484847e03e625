"""The commands that are named as the next step can be typed."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from clusterkit.cli.app import app
from clusterkit.diagnosis import diagnose, parse_evidence
from tests.diagnosis.run_dirs import RECORDED

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
