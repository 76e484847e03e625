"""A program of somebody else's on a real cluster, in a container: the example of docs/own-project.md."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.image import PROJECT
from tests.cluster.laptop import User

EXAMPLE = PROJECT / "docs" / "examples" / "own-project"


@pytest.fixture(scope="module")
def runs(user: User) -> dict[str, str]:
    """One run that does as the page says, and one that writes beside its code: what each is -> run id."""
    program, profile = (EXAMPLE / "clusterkit.toml").read_text().split("[profiles.mine]")
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace('default_profile = "tiny"', program.replace("[project]", ""))
    text = text.replace("[clusters.site]", '[clusters.site]\npython = "/opt/venv/bin/python"')
    settings.write_text(f'{text}\n[profiles.mine]\ngpu = "a40"\nmemory = "1G"{profile}')
    for name in ("train.py", "progress.py"):
        shutil.copy(EXAMPLE / name, user.folder)
    user.types("deploy")
    beside = user.submits("--", "--out", "runs")
    good = user.submits("--seed", "3", "--", "--steps", "100", "--pause", "0.1")
    deadline = time.monotonic() + 300
    while not (user.root / "runs" / good / "heartbeat.json").exists():
        assert time.monotonic() < deadline, user.types("logs", good)
        time.sleep(0.2)
    while not (state := user.status(good)[good])["eta_seconds"]:
        assert not state["final"], "status never showed a time left"
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    assert all(run["final"] for run in user.ended(good, beside).values())
    user.types("sync-results")
    return {"good": good, "beside": beside}


def test_its_outputs_come_home(user: User, runs: dict[str, str]) -> None:
    run = user.status(runs["good"])[runs["good"]]
    assert (run["state"], run["progress"]) == ("COMPLETED", 1.0)
    home = user.folder / "results" / runs["good"]
    assert len((home / "out" / "progress.csv").read_text().splitlines()) == 10
    argv = json.loads((home / "run.json").read_text())["argv"]
    assert Path(argv[3]).name == "out"
    assert argv[4:] == ["--seed", "3", "--steps", "100", "--pause", "0.1"]
    assert "curves.png" in user.types("report", runs["good"])


def test_outputs_beside_the_code_are_refused_and_why_says_where_they_belong(
    user: User, runs: dict[str, str]
) -> None:
    said = user.types("why", runs["beside"])
    assert "(code-read-only)" in said
    assert "$CLUSTERKIT_RUN_DIR" in said
