"""Arguments to the letter: what is given after `--` is the program's argv, through the whole path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clusterkit.config.settings import load_settings
from clusterkit.runs.ledger import Ledger
from clusterkit.submit.pipeline import resolve, submit
from clusterkit.submit.request import SubmitRequest
from clusterkit.transport.base import ProgressCallback
from tests.commands.conftest import Project

WRITES = (
    """for word; do printf '%s\\0' "$word"; done >"$CLUSTERKIT_RUN_DIR/argv"; """
    """: >"$CLUSTERKIT_RUN_DIR/done\""""
)
CONFIG = f"""
[project]
name = "demo"
program = ["sh", "-c", {json.dumps(WRITES)}, "sh"]
default_profile = "tiny"
[profiles.tiny]
time = "5m"
"""
AWKWARD = ("", "--", "-", "$HOME", "`id`", "a b", "'", '"', "\\", "\n", "%j", "{x}", "é", "🤖", "~", "*")
ARGUMENT = st.sampled_from(AWKWARD) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=30
)
ARGVS = st.tuples(st.lists(ARGUMENT, max_size=8), st.lists(ARGUMENT, min_size=60, max_size=120))
"""Few arguments and many: every submission starts processes, an argument more costs next to nothing."""


@contextmanager
def no_bar(_label: str, _total: int | None) -> Iterator[ProgressCallback]:
    yield lambda _report: None


def submitted(project: Project, ledger: Ledger, arguments: Sequence[str]) -> Path:
    """Submit in this process, to the local cluster; returns the run directory."""
    known = load_settings(config=project.folder / "clusterkit.toml")
    request = SubmitRequest(known.cluster(), known.profile(), arguments=tuple(arguments))
    return Path(submit(known, resolve(known, request), ledger, bar=no_bar).runs[0].run_dir)


@pytest.mark.slow
@given(ARGVS)
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
def test_any_arguments_arrive_unchanged(project: Project, argvs: tuple[list[str], list[str]]) -> None:
    (project.folder / "clusterkit.toml").write_text(CONFIG)
    with Ledger(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        folders = [submitted(project, ledger, argv) for argv in argvs]
    for folder, argv in zip(folders, argvs, strict=True):
        project.until((folder / "done").exists)
        assert (folder / "argv").read_bytes().decode().split("\0")[:-1] == argv
