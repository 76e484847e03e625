"""A program of somebody else's on a real cluster, in a container: the example of docs/own-project.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.image import PROJECT
from tests.cluster.laptop import User
from tests.waiting import until

EXAMPLE = PROJECT / "docs" / "examples" / "own-project"


@pytest.fixture(scope="module")
def runs(user: User) -> dict[str, str]:
    """One run that does as the page says, and two that write beside their code: what each is -> run id."""
    program, profile = (EXAMPLE / "clusterkit.toml").read_text().split("[profiles.mine]")
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace('default_profile = "tiny"', program.replace("[project]", ""))
    text = text.replace("[clusters.site]", '[clusters.site]\npython = "/opt/venv/bin/python"')
    settings.write_text(f'{text}\n[profiles.mine]\ngpu = "a40"\nmemory = "1G"{profile}')
    shutil.copy(EXAMPLE / "train.py", user.folder)
    user.types("deploy")
    beside = user.submits("--", "--out", "runs", "--steps", "100")
    later = user.submits("--", "--out", "runs", "--steps", "100")
    good = user.submits("--seed", "3", "--", "--steps", "100", "--pause", "0.1")
    until((user.root / "runs" / good / "heartbeat.json").exists)

    def shown() -> dict[str, Any]:
        state = user.status(good)[good]
        return state if state["eta_seconds"] or state["final"] else {}

    assert not until(shown)["final"], "status never showed a time left"
    assert all(run["final"] for run in user.ended(good, beside, later).values())
    user.types("sync-results")
    return {"good": good, "beside": beside, "later": later}


def test_its_outputs_come_home(user: User, runs: dict[str, str]) -> None:
    run = user.status(runs["good"])[runs["good"]]
    assert (run["state"], run["progress"]) == ("COMPLETED", 1.0)
    home = user.folder / "results" / runs["good"]
    assert len((home / "out" / "progress.csv").read_text().splitlines()) == 10
    argv = json.loads((home / "run.json").read_text())["argv"]
    assert Path(argv[3]).name == "out"
    assert argv[4:] == ["--seed", "3", "--steps", "100", "--pause", "0.1"]
    assert "report.html" in user.types("report", runs["good"])


def test_outputs_beside_the_code_come_home_and_no_run_sees_those_of_another(
    user: User, runs: dict[str, str]
) -> None:
    for name in ("beside", "later"):
        work = user.folder / "results" / runs[name] / "work"
        assert [path.name for path in work.iterdir()] == ["runs"]
        assert len((work / "runs" / "progress.csv").read_text().splitlines()) == 10
    (snapshot,) = (path.parent for path in user.root.glob("snapshots/*/project/train.py"))
    assert not (snapshot / "runs").exists()
    assert not [
        path
        for path in (snapshot, *snapshot.rglob("*"))
        if not path.is_symlink() and path.stat().st_mode & 0o222
    ]
