"""watch: curves of a run on the local cluster, while it runs, when it has ended, and from the synced copy."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import transfer_bar
from clusterkit.commands import curves as module
from clusterkit.commands.curves import Curves, curves_of
from clusterkit.config.settings import Settings
from clusterkit.errors import TransportError
from clusterkit.project import load, open_ledger
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState, to_text
from tests.commands.conftest import Project
from tests.doubles.slurm_site import Member, SlurmSite

MEMBER = Member(1, JobState.RUNNING)


def run_curves(
    settings: Settings, run: LedgerRun, *, follow: bool, say: Callable[[str], None] = lambda _: None
) -> Iterator[Curves]:
    return (one for (one,) in curves_of(settings, [run], follow=follow, bar=transfer_bar, say=say))


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


@pytest.mark.slow
def test_a_run_that_goes_on(learning: tuple[Project, str], monkeypatch: pytest.MonkeyPatch) -> None:
    project, run_id = learning
    monkeypatch.chdir(project.folder)
    settings = load(None)
    with open_ledger(settings) as ledger:
        (run,) = ledger.find([run_id])
    looks = run_curves(settings, run, follow=True)
    first = next(looks)
    assert (first.state.state, first.total_steps) == ("RUNNING", 2000)
    assert success(first) == [0.25]  # a line that is half written waits
    (project.run_dir(run_id) / "go").touch()
    *_, last = looks
    assert last.state.state == "COMPLETED"
    assert success(last) == [0.25, 0.75]
    assert len(last.rows) == 13


@pytest.mark.slow
def test_it_is_drawn(learning: tuple[Project, str]) -> None:
    project, run_id = learning
    shown = project.run("curves", "--once").stdout.splitlines()
    assert shown[0].startswith(f"{run_id}  RUNNING, step 1k of 2k")
    for words in ("success  25%  best 25% at 1k", "return  300  best 300 at 1k", "steps_per_second  500"):
        assert words in shown[1]
    (project.run_dir(run_id) / "go").touch()
    project.ended(run_id)
    project.run("sync-results", "--no-wandb")
    shutil.rmtree(project.run_dir(run_id))
    shown = project.run("curves", run_id).stdout.splitlines()
    assert "COMPLETED, step 2k of 2k" in shown[0]
    assert "synced copy of 20" in shown[0]
    assert "success  75%" in shown[1]


@pytest.mark.slow
def test_a_group_has_a_line_for_each_run(project: Project) -> None:
    (project.folder / "train.py").write_text(LOSSES)
    group = project.run("submit", "--seeds", "1,2").stdout.strip()
    project.ended(f"{group}-0", f"{group}-1")
    for words in (("last",), (group, "--once")):
        lines = project.run("curves", *words).stdout.splitlines()
        assert lines[0].split() == ["run", "state", "step", "loss", "curve"]
        assert [line.split()[:4] for line in lines[1:]] == [
            [f"{group}-0", "COMPLETED", "30", "0.25"],
            [f"{group}-1", "COMPLETED", "30", "0.25"],
        ]
        assert "█" in lines[1]


@pytest.mark.slow
def test_a_run_without_metrics(project: Project) -> None:
    run_id = project.submit()
    project.ended(run_id)
    failed = project.run("curves", code=8)
    assert f"{run_id} has ended and logged no numbers" in failed.stderr
    assert failed.stdout == ""


LOSSES = """
import json, os, pathlib
with (pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"]) / "metrics.jsonl").open("w") as file:
    for step, loss in ((10, 1.0), (20, 0.5), (30, 0.25)):
        print(json.dumps({"kind": "train", "step": step, "loss": loss}), file=file)
print("seed", os.environ["CLUSTERKIT_SEED"])
"""


@pytest.fixture
def site(site: SlurmSite, monkeypatch: pytest.MonkeyPatch) -> SlurmSite:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(module, "ASK_SECONDS", 1.0)
    site.knows([MEMBER])
    return site


def write(site: SlurmSite, step: int) -> None:
    row = {"kind": "eval", "step": step, "time": 0.0, "attempt": 0, "success/mean": step / 1000}
    with (site.root / "runs" / MEMBER.run_id / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.slow
def test_a_cluster_far_away(site: SlurmSite) -> None:
    settings = site.settings()
    with site.ledger() as ledger:
        (run,) = ledger.find([MEMBER.run_id])
    looks = run_curves(settings, run, follow=True)
    assert next(looks).rows == ()
    write(site, 100)
    assert success(next(looks)) == [0.1]
    site.server.drop_connections()
    site.says("squeue", error="slurm_load_jobs error: Unable to contact slurm controller")
    site.says("sacct", error="down")
    write(site, 200)
    began = time.monotonic()
    while time.monotonic() < began + 2:
        assert success(next(looks)) == [0.1, 0.2]
    assert site.calls()["squeue"] <= 5
    assert site.server.accepted_logins() == 2
    done = replace(MEMBER, state=JobState.COMPLETED)
    write(site, 300)
    site.settle([done])
    site.answers([done])
    *_, last = looks
    assert (last.state.state, success(last)) == ("COMPLETED", [0.1, 0.2, 0.3])


def test_a_silent_cluster_and_a_copy_here(site: SlurmSite) -> None:
    settings = site.settings()
    with site.ledger() as ledger:
        (run,) = ledger.find([MEMBER.run_id])
    write(site, 100)
    site.close()
    with pytest.raises(TransportError):
        next(run_curves(settings, run, follow=True))
    copy = settings.project.results / MEMBER.run_id
    shutil.copytree(site.root / "runs" / MEMBER.run_id, copy)
    said: list[str] = []
    (one,) = run_curves(settings, run, follow=True, say=said.append)
    assert (success(one), one.state.state) == ([0.1], "RUNNING")
    assert one.synced is not None
    assert said[-1].endswith("; this is the synced copy")
    (one,) = run_curves(settings, replace(run, cluster="gone"), follow=True, say=said.append)
    assert success(one) == [0.1]
    assert "'gone'" in said[-1]


def success(one: Curves) -> list[float | None]:
    return [row.number("success/mean") for row in one.rows if row.kind == "eval"]


def test_a_run_that_goes_on_past_its_time_limit_is_asked_about(site: SlurmSite) -> None:
    settings = site.settings()
    with site.ledger() as ledger:
        (run,) = ledger.find([MEMBER.run_id])
    write(site, 100)
    copy = settings.project.results / MEMBER.run_id
    shutil.copytree(site.root / "runs" / MEMBER.run_id, copy)
    (copy / "attempts/0/exit.json").write_text('{"code": 143, "why": "timeout", "ended": 1767243600}')
    write(site, 200)
    looks = run_curves(settings, replace(run, until_done="requeue"), follow=True)
    assert success(next(looks)) == [0.1, 0.2]
    looks.close()  # type: ignore[attr-defined]
    (one,) = run_curves(settings, run, follow=True)
    assert (success(one), one.state.state) == ([0.1], "FAILED")
    cancelled = RunState(JobState.CANCELLED, final=True)
    (one,) = run_curves(settings, replace(run, state="CANCELLED", last=to_text(cancelled)), follow=True)
    assert (success(one), one.state.state) == ([0.1], "CANCELLED")
