"""`clusterkit sync-results` and `clusterkit report` as a person runs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from clusterkit.runs.ledger import Ledger
from tests import forked
from tests.doubles import forked_wandb
from tests.doubles.wandb_server import API_KEY, WandbServer
from tests.results.run_dirs import make_run_dir
from tests.runs.test_ledger import run as a_run
from tests.wandb.wandb_runs import write_offline_run

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

RUN = "demo-20260102-030405-k3f9"
STEPS = range(30)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run_dir(tmp_path_factory.mktemp("writer"), RUN)
    write_offline_run(folder, RUN, STEPS)
    return folder


@dataclass
class Project:
    """A project with one finished run on the local cluster."""

    folder: Path
    server: WandbServer
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        return self.folder / ".clusterkit" / "local" / "runs"

    def run(self, *arguments: str, code: int | None = 0, key: bool = True) -> str:
        """Run clusterkit; returns everything it printed. The exit code must be `code`, unless None."""
        environment = os.environ | self.environment | {"COLUMNS": "140"}
        if not key:
            environment.pop("WANDB_API_KEY")
        done = forked.run(arguments, folder=self.folder, env=environment)
        printed = done.stdout + done.stderr
        assert code in (None, done.returncode), printed
        assert "Traceback" not in printed
        assert API_KEY not in printed
        return printed


@pytest.fixture
def project(finished_run: Path, tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "clusterkit.toml").write_text('[project]\nname = "demo"\n')
    with WandbServer() as server:
        own = {"XDG_CONFIG_HOME": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
        environment = own | server.client_env(tmp_path) | forked_wandb.variables()
        project = Project(folder, server, environment)
        shutil.copytree(finished_run, project.runs / RUN, symlinks=True)
        add_to_ledger(project, RUN)
        yield project


def add_to_ledger(project: Project, run_id: str) -> None:
    with Ledger(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        known = a_run(run_id, f"job-{run_id}", "local")
        ledger.add(replace(known, run_dir=str(project.runs / run_id), total_steps=256_000, state="RUNNING"))


@pytest.mark.slow
def test_home_uploaded_once_and_reported(project: Project) -> None:
    printed = project.run("sync-results")
    assert f"uploaded ({len(STEPS)} steps)" in printed
    run = project.server.runs[RUN]
    assert run.arrived_steps == list(STEPS)
    assert (run.once, run.state) == (True, "finished")
    home = project.folder / "results" / RUN
    assert (home / "metrics.jsonl").read_bytes() == (project.runs / RUN / "metrics.jsonl").read_bytes()
    assert not list(home.rglob("*.synced"))
    asked = len(project.server.requests)
    printed = project.run("sync-results", "last")
    assert printed.count("up to date") == 2
    assert len(project.server.requests) == asked
    opened, browser = project.folder / "opened", project.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{opened}\n')
    browser.chmod(0o700)
    project.environment["BROWSER"] = f"{browser} %s"
    printed = project.run("report", "last", "--open")
    assert "256,000" in printed
    assert "beside it: curves.png, curves.svg, machine.png, machine.svg" in printed
    assert opened.read_text() == f"{(home / 'report/report.html').as_uri()}\n"
    project.environment |= {"BROWSER": "/nowhere", "PATH": "/nowhere"}
    assert f"no browser was found; open {home / 'report/report.html'}" in project.run("report", "--open")
    assert {path.name for path in (home / "report").iterdir()} == {
        "curves.png",
        "curves.svg",
        "machine.png",
        "machine.svg",
        "report.html",
    }


@pytest.mark.slow
def test_advice_writes_nothing_and_needs_no_evaluation(project: Project) -> None:
    home = project.folder / "results" / RUN
    shutil.copytree(project.runs / RUN, home, symlinks=True)
    lines = (home / "metrics.jsonl").read_text().splitlines(keepends=True)
    (home / "metrics.jsonl").write_text("".join(line for line in lines if '"eval"' not in line))
    printed = project.run("report", "last", "--advice")
    assert "each run took one attempt" in printed
    assert not (home / "report").exists()
    assert "no run has logged a number" in project.run("report", "last")


@pytest.mark.slow
def test_without_a_key_nothing_is_asked_for(project: Project) -> None:
    printed = project.run("sync-results", key=False)
    assert "1 offline" in printed
    assert "wandb login" in printed
    assert project.server.requests == []
    project.run("sync-results")
    assert project.server.runs[RUN].once


def test_no_wandb_and_dry_run(project: Project) -> None:
    assert "W&B" not in project.run("sync-results", "--no-wandb")
    assert f"would upload ({len(STEPS)} steps)" in project.run("sync-results", "--wandb-dry-run")
    assert project.server.requests == []


@pytest.mark.slow
def test_a_failed_upload_costs_no_results_and_is_tried_again(project: Project) -> None:
    project.server.fail("file_stream", 401)
    printed = project.run("sync-results", code=9)
    assert "refused the history: 401" in printed
    assert "1 of 1 W&B uploads failed" in printed
    assert (project.folder / "results" / RUN / "run.json").is_file()
    project.server.faults.clear()
    assert "uploaded" in project.run("sync-results")
    assert project.server.runs[RUN].once


@pytest.mark.slow
def test_a_run_the_cluster_has_lost(project: Project) -> None:
    add_to_ledger(project, "demo-gone")
    printed = project.run("sync-results")
    assert "not on the cluster" in printed
    assert "uploaded" in printed


def test_wrong_input(project: Project) -> None:
    assert "no run 'nope'" in project.run("sync-results", "nope", code=8)
    assert "not a size" in project.run("sync-results", "--bandwidth-limit", "fast", code=3)
    assert "is not in" in project.run("report", "last", code=8)
    assert "lokal" in project.run("sync-results", "--cluster", "lokal", code=3)
