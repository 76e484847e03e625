"""`clusterkit why` of runs on this machine, through the real command line."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.jobs import JobState
from tests.commands.conftest import Project
from tests.doubles.slurm_site import Member, SlurmSite

pytestmark = pytest.mark.slow

FAULT = """
import sys
print("loading")
import nothing_like_it
"""


def why(project: Project, run_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(project.run("why", "--json", run_id).stdout)
    return answer


def test_a_run_that_failed(project: Project) -> None:
    (project.folder / "train.py").write_text(FAULT)
    run_id = project.submit()
    project.ended(run_id)
    answer = why(project, run_id)
    assert answer["schema"] == 1
    assert answer["state"] == "FAILED"
    assert answer["cause"] == "import-error"
    assert answer["trouble"] is True
    assert answer["evidence"][0]["source"] == "attempts/0/log"
    assert answer["next"] == f"clusterkit logs {run_id} -n 200"
    shown = project.run("why", "last").stdout
    assert "nothing_like_it" in shown
    assert shown.splitlines()[-1] == f"next  clusterkit logs {run_id} -n 200"


def test_a_log_cannot_give_orders_to_the_terminal(project: Project) -> None:
    (project.folder / "train.py").write_text(r"""raise ValueError("\x1b]0;owned\x07 \x1b[31mred")""")
    run_id = project.submit()
    project.ended(run_id)
    shown = project.run("why", run_id).stdout
    assert "program-failed" in shown
    assert shown.count(r"\x1b[31mred") >= 2  # in the sentence, and where it was seen
    assert "\x1b" not in shown


def test_a_run_that_is_well_and_one_that_was_cancelled(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    project.until((project.run_dir(run_id) / "heartbeat.json").exists)
    answer = why(project, run_id)
    assert (answer["cause"], answer["trouble"]) == ("running", False)
    assert "40%" in answer["sentence"]
    project.run("cancel", run_id)
    project.ended(run_id)
    assert why(project, run_id)["cause"] == "cancelled-by-you"


def test_runs_of_a_group_that_wait_for_others(project: Project) -> None:
    project.run("submit", "--seeds", "1,2", "--max-parallel", "1", "--", "sleep")
    document = json.loads(project.run("status", "--json").stdout)
    first, second = (run["run_id"] for run in document["runs"])
    project.run("submit", "--after", first, "--", "sleep")
    project.until((project.run_dir(first) / "heartbeat.json").exists)
    assert why(project, first)["cause"] == "running"
    waiting, after = why(project, second), why(project, "last")
    assert (waiting["state"], waiting["cause"], waiting["trouble"]) == ("PENDING", "waiting", False)
    assert waiting["evidence"] == [{"source": "scheduler", "text": "PENDING, reason JobArrayTaskLimit"}]
    assert (after["state"], after["cause"]) == ("PENDING", "dependency")
    project.run("cancel", "--all", "--yes")


def test_a_run_that_completed_and_its_documented_json(project: Project) -> None:
    run_id = project.submit()
    project.ended(run_id)
    answer = why(project, run_id)
    assert (answer["cause"], answer["next"]) == ("completed", f"clusterkit sync-results {run_id}")
    page = (Path(__file__).resolve().parents[2] / "docs" / "why.md").read_text()
    section = page[page.index("## JSON") :]
    for key in answer:
        assert f'"{key}"' in section


@pytest.mark.needs("sshd")
def test_the_job_of_another_laptop_is_the_one_that_is_told_of(tmp_path: Path) -> None:
    run = Member(1, JobState.RUNNING)
    with closing(SlurmSite(tmp_path / "site")) as site:
        site.remember([run])
        site.resume(run, "800001")
        answer = json.loads(site.types("why", "--json", run.run_id).stdout)
    assert (answer["job_id"], answer["attempt"]) == ("800001", 1)


def test_the_next_command_of_a_refused_argument_succeeds(project: Project) -> None:
    (project.folder / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--note')\np.parse_args()\n"
    )
    run_id = project.submit("--name", "mine", "--time", "3m", "--", "--note", "it's mine", "--sede", "4")
    project.ended(run_id)
    told = json.loads(project.run("why", run_id, "--json").stdout)
    assert told["cause"] == "wrong-argument"
    assert told["cure"].startswith("change `--sede 4`")
    words = shlex.split(told["next"])
    assert words[:2] == ["clusterkit", "submit"]
    assert words[words.index("--") :] == ["--", "--note", "it's mine"]
    again = project.run(*words[1:]).stdout.strip()
    project.ended(again)
    assert again.startswith("mine-")
    (state,) = json.loads(project.run("status", again, "--json").stdout)["runs"]
    assert (state["state"], state["limit_seconds"]) == ("COMPLETED", 180)
