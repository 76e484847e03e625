"""One submission, one run: killed at every step, answered unclearly, or not answered at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.verbs.conftest import Project

ROOT = Path(__file__).parents[2]
COUNTS = """
import os
with open({file!r}, "a") as file:
    file.write(os.environ["CLUSTERKIT_RUN_ID"] + "\\n")
"""


def kill_at(project: Project, point: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Submit with SIGKILL at one of its calls, which may be beyond the last."""
    return subprocess.run(
        [sys.executable, "-m", "tests.doubles.kill_point", str(point), "submit", *words],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def rows(project: Project) -> dict[str, dict[str, Any]]:
    report = json.loads(project.run("status", "--all", "--json").stdout)
    return {row["run_id"]: row for row in report["runs"]}


@pytest.mark.slow
def test_killed_at_every_step(project: Project, tmp_path: Path) -> None:
    started = tmp_path / "started"
    (project.folder / "train.py").write_text(COUNTS.format(file=str(started)))
    kills = 0
    while (ended := kill_at(project, kills + 1).returncode) == -signal.SIGKILL:
        kills += 1
    assert ended == 0
    assert kills > 20
    project.until(lambda: {row["state"] for row in rows(project).values()} <= {"COMPLETED", "NOT_SUBMITTED"})
    known = rows(project)
    there = {path.name for path in project.run_dir("").iterdir()}
    starts = Counter(started.read_text().split())
    assert there <= set(known), "a run directory that the ledger does not know"
    assert set(starts.values()) == {1}, "a run that was started twice"
    assert set(starts) == {run_id for run_id, row in known.items() if row["state"] == "COMPLETED"}
    assert {row["state"] for row in known.values()} == {"COMPLETED", "NOT_SUBMITTED"}
    assert not list(project.run_dir("").parent.glob(".new-*"))
    print(f"{kills} kills: {len(starts)} runs started once, {len(known) - len(starts)} never")


@pytest.mark.slow
def test_a_group_killed_at_every_step(project: Project, tmp_path: Path) -> None:
    """Of two parts: the second is handed over when the first has its jobs."""
    started = tmp_path / "started"
    (project.folder / "train.py").write_text(COUNTS.format(file=str(started)))
    toml = project.folder / "clusterkit.toml"
    toml.write_text(toml.read_text() + '\n[profiles.second]\ntime = "6m"\n')
    group = ("--sweep", "profile=tiny,second", "--seeds", "1,2", "--max-parallel", "4")
    kills = 0
    while (ended := kill_at(project, 1 + 3 * kills, *group).returncode) == -signal.SIGKILL:
        kills += 1
    assert ended == 0
    assert kills > 20
    project.until(
        lambda: {row["state"] for row in rows(project).values()} <= {"COMPLETED", "NOT_SUBMITTED"}, 200
    )
    known = rows(project)
    starts = Counter(started.read_text().split())
    assert {path.name for path in project.run_dir("").iterdir()} <= set(known)
    assert set(starts.values()) == {1}, "a run that was started twice"
    assert set(starts) == {run_id for run_id, row in known.items() if row["state"] == "COMPLETED"}
    halves = Counter(Counter(run_id[:-2] for run_id in starts).values())
    assert halves[2], "no submit was killed between its parts"
    print(f"{kills} kills: {halves[4]} groups whole, {halves[2]} half")


TOOLS = """
[clusters.here]
root = "{root}"
container = "none"
"""


class Site:
    """A cluster on this machine whose sbatch and squeue are scripts: a real one loses no answer on demand."""

    def __init__(self, project: Project, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.folder, self.bin = project, folder, folder / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        toml = project.folder / "clusterkit.toml"
        toml.write_text(toml.read_text() + TOOLS.format(root=folder / "root"))

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def runs(self) -> list[Path]:
        return list((self.folder / "root" / "runs").iterdir())

    def row(self) -> dict[str, Any]:
        (row,) = rows(self.project).values()
        return row


@pytest.fixture
def site(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(project, tmp_path, monkeypatch)
    site.tool("sacct", "exit 1")
    # squeue knows the job if there is one, by name and by id; options: see find_script and query_script.
    site.tool(
        "squeue",
        f"""cat {tmp_path}/job 2>/dev/null || exit 0
case "$*" in *" -n "*) ;; *) exit 0 ;; esac""",
    )
    return site


def test_an_answer_lost_with_the_login_node(site: Site, project: Project, tmp_path: Path) -> None:
    site.tool("sbatch", f"echo 4711 >{tmp_path}/job; kill -9 $PPID")
    said = project.run("submit", "-c", "here")
    assert "job 4711" in said.stderr
    assert site.row()["job_id"] == "4711"


def test_a_timeout_of_a_job_that_was_accepted(site: Site, project: Project, tmp_path: Path) -> None:
    error = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    site.tool("sbatch", f"echo 4712 >{tmp_path}/job; echo '{error}' >&2; exit 1")
    assert "job 4712" in project.run("submit", "-c", "here").stderr
    assert len(site.runs) == 1


def test_a_timeout_of_a_job_that_was_not(site: Site, project: Project) -> None:
    error = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    site.tool("sbatch", f"echo '{error}' >&2; exit 1")
    assert "Socket timed out" in project.run("submit", "-c", "here", code=5).stderr
    assert site.runs == []
    assert rows(project) == {}


def test_while_nobody_can_tell_it_stays_open(site: Site, project: Project, tmp_path: Path) -> None:
    error = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
    site.tool("sbatch", f"echo '{error}' >&2; exit 1")
    squeue = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    site.tool("squeue", f"touch {tmp_path}/asked; {squeue}")
    said = project.run("submit", "-c", "here", code=5).stderr
    assert "Unable to contact slurm controller" in said.replace("\n", " ")
    assert "clusterkit status" in said
    assert not (tmp_path / "asked").exists(), "squeue would wait for the same controller"
    row = site.row()
    assert row["state"] == "SUBMITTING"
    assert "cannot be asked" in row["why"]
    assert "Unable to contact" in row["why"]
    site.tool("squeue", "exit 0")
    row = site.row()
    assert row["state"] == "NOT_SUBMITTED"
    assert "Unable to contact" in row["why"]
    assert len(site.runs) == 1


def test_the_next_submit_tells_of_the_interrupted_one(site: Site, project: Project, tmp_path: Path) -> None:
    site.tool("sbatch", f"echo 4713 >{tmp_path}/job; kill -9 $PPID")
    site.tool("squeue", "exit 1")
    project.run("submit", "-c", "here", code=5)
    (first,) = rows(project)
    site.tool("squeue", f'case "$*" in *{first}*) echo 4713 ;; esac')
    site.tool("sbatch", "echo 4714")
    said = project.run("submit", "-c", "here").stderr
    assert first in said
    assert "is job 4713" in said.replace("\n", " ")
    assert sorted(row["job_id"] for row in rows(project).values()) == ["4713", "4714"]


def test_the_users_own_sbatch_variables_change_nothing(
    site: Site, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "wrong")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    site.tool("sbatch", f"env >{tmp_path}/environment; echo '12;cluster'")
    assert "job 12;cluster" in project.run("submit", "-c", "here").stderr
    environment = (tmp_path / "environment").read_text()
    assert "SBATCH_" not in environment
    assert "SLURM_JOB_ID" not in environment
