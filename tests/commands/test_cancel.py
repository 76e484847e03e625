"""cancel on the local cluster: several runs, all of them, and the question before."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from tests.commands.conftest import Project
from tests.doubles.person import type_at_terminal
from tests.doubles.slurm_site import Member, SlurmSite, queue_row

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each


def sleeping(project: Project, count: int) -> list[str]:
    runs = [project.submit("--", "sleep") for _ in range(count)]
    for run_id in runs:
        project.until((project.run_dir(run_id) / "heartbeat.json").exists)
    return runs


def answers(project: Project, *words: str, answer: str) -> tuple[int, str]:
    done = type_at_terminal(
        words,
        {"[y/N]": lambda: answer},
        folder=project.folder,
        environment={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    return done.returncode, done.stdout


def test_several_and_all(project: Project) -> None:
    first, second, third = sleeping(project, 3)
    assert project.run("cancel", first, second).stdout.split() == [first, "cancelled", second, "cancelled"]
    refused = project.run("cancel", "--all", code=3)
    assert "would cancel 1 run," in refused.stderr
    assert "--yes" in refused.stderr
    assert project.run("cancel", "--all", "--yes").stdout == f"{third}  cancelled\n"
    assert project.states() == ["CANCELLED"] * 3
    assert "had ended already" in project.run("cancel", "last").stdout
    assert "no run of this project is waiting or running" in project.run("cancel", "--all", "--yes").stderr
    for run_id in (first, second, third):
        record = json.loads((project.run_dir(run_id) / "attempts/0/cancel.json").read_text())
        assert record["job_id"] == json.loads(
            (project.run_dir(run_id) / "attempts/0/start.json").read_text()
        ).get("job_id")


def test_a_person_is_asked_about_a_running_run(project: Project) -> None:
    (run_id,) = sleeping(project, 1)
    # by a variable of a script that holds nothing, while there is a single run
    assert "is empty" in project.run("cancel", "", "--yes", code=8).stderr
    code, screen = answers(project, "cancel", run_id, answer="n")
    assert code == 0
    assert "RUNNING" in screen
    assert "Cancel this run?" in screen
    assert "nothing was cancelled" in screen
    assert project.states() == ["RUNNING"]
    code, screen = answers(project, "cancel", "--all", answer="y")
    assert f"{run_id}  cancelled" in screen
    assert project.states() == ["CANCELLED"]


def test_a_group(project: Project) -> None:
    first, second, other = sleeping(project, 3)
    with sqlite3.connect(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.execute("UPDATE runs SET \"group\" = 'sweep-1' WHERE run_id IN (?, ?)", (first, second))
    assert "--yes" in project.run("cancel", "--group", "sweep", code=3).stderr
    assert "no group ''" in project.run("cancel", "--group", "", "--yes", code=8).stderr
    assert "no group 'swoop'" in project.run("cancel", "--group", "swoop", code=8).stderr
    assert "exclude each other" in project.run("cancel", other, "--group", "sweep-1", code=3).stderr
    assert project.run("cancel", "--group", "sweep", "--yes").stdout.count("cancelled") == 2
    assert project.states() == ["CANCELLED", "CANCELLED", "RUNNING"]
    project.run("cancel", other)


@pytest.mark.needs("sshd")
def test_the_job_of_another_laptop_is_the_one_that_ends(tmp_path: Path) -> None:
    """It has resumed the run since this ledger was asked last."""
    run = Member(1, JobState.RUNNING)
    with closing(SlurmSite(tmp_path / "site")) as site:
        site.remember([run])
        site.resume(run, "800001")
        site.says("squeue", [queue_row(run).replace(run.job_id, "800001")])
        site.tool("scancel", f'echo "scancel $*" >>{site.folder}/calls')
        assert site.types("cancel", run.run_id).stdout == f"{run.run_id}  cancelled\n"
        assert "scancel -Q 800001\n" in (site.folder / "calls").read_text()
        record = site.root / "runs" / run.run_id / "attempts" / "1" / "cancel.json"
        assert json.loads(record.read_text())["job_id"] == "800001"


def test_nothing_named(project: Project) -> None:
    assert "--all" in project.run("cancel", code=3).stderr
    assert "nosuch" in project.run("cancel", "--all", "--cluster", "nosuch", code=3).stderr
