"""watch: curves of a run on the local cluster, while it runs, when it has ended, and from the synced copy."""

from __future__ import annotations

import shutil

import pytest

from clusterkit.cli.common import load, open_ledger
from clusterkit.verbs.curves import Curves, curves
from tests.verbs.conftest import Project

LEARN = """
import json, os, time
folder = os.environ["CLUSTERKIT_RUN_DIR"]
out = open(folder + "/metrics.jsonl", "a")
def row(kind, step, **values):
    out.write(json.dumps({"kind": kind, "step": step, "time": 0.0, "attempt": 0, **values}) + "\\n")
    out.flush()
row("run", 0, total_steps=2000)
for number in range(1, 11):
    row("train", 100 * number, steps_per_second=50.0 * number)
row("eval", 1000, **{"success/mean": 0.25, "return/mean": 300.0})
out.write('{"kind": "eval", "step": 2000, "suc')
out.flush()
while not os.path.exists(folder + "/go"): time.sleep(0.05)
out.write('cess/mean": 0.75, "return/mean": 500.0, "time": 0.0, "attempt": 0}\\n')
"""


@pytest.fixture
def learning(project: Project) -> tuple[Project, str]:
    (project.folder / "train.py").write_text(LEARN)
    run_id = project.submit()
    metrics = project.run_dir(run_id) / "metrics.jsonl"
    project.until(lambda: metrics.exists() and metrics.read_text().endswith("suc"))
    return project, run_id


def test_a_run_that_goes_on(learning: tuple[Project, str], monkeypatch: pytest.MonkeyPatch) -> None:
    project, run_id = learning
    monkeypatch.chdir(project.folder)
    settings = load(None)
    with open_ledger(settings) as ledger:
        (run,) = ledger.find([run_id])
    looks = curves(settings, run, follow=True)
    first = next(looks)
    assert (first.state.state, first.total_steps) == ("RUNNING", 2000)
    assert success(first) == [0.25]  # a line that is half written waits
    (project.run_dir(run_id) / "go").touch()
    *_, last = looks
    assert last.state.state == "COMPLETED"
    assert success(last) == [0.25, 0.75]
    assert len(last.rows) == 13


def test_it_is_drawn(learning: tuple[Project, str]) -> None:
    project, run_id = learning
    shown = project.run("watch", "--once").stdout.splitlines()
    assert shown[0].startswith(f"{run_id}  RUNNING, step 1k of 2k")
    for words in ("success  25%  best 25% at 1k", "return  300  best 300 at 1k", "steps/s  500"):
        assert words in shown[1]
    (project.run_dir(run_id) / "go").touch()
    project.ended(run_id)
    project.run("sync-results", "--no-wandb")
    shutil.rmtree(project.run_dir(run_id))
    shown = project.run("watch", run_id).stdout.splitlines()
    assert "COMPLETED, step 2k of 2k" in shown[0]
    assert "synced copy of 20" in shown[0]
    assert "success  75%" in shown[1]


def test_a_run_without_metrics(project: Project) -> None:
    run_id = project.submit()
    project.ended(run_id)
    failed = project.run("watch", code=8)
    assert f"{run_id} is COMPLETED and has written no metrics" in failed.stderr
    assert failed.stdout == ""


def success(one: Curves) -> list[float | None]:
    return [row.number("success/mean") for row in one.rows if row.kind == "eval"]
