"""status of what the ledger does not know: lost runs, later jobs, those of another laptop."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from clusterkit.backends.jobs import JobState
from tests.doubles.slurm_site import (
    DONE,
    EVERYONE,
    FAILED,
    RUNNING,
    WAITING,
    Member,
    SlurmSite,
    accounting_rows,
    by_id,
    queue_row,
    states,
)

pytestmark = pytest.mark.slow


def link(site: SlurmSite, member: Member, number: int, job_id: str, kind: str) -> None:
    """One more submission of a run."""
    folder = site.root / "runs" / member.run_id / "submissions" / str(number)
    folder.mkdir()
    request = {"number": number, "kind": kind, "options": [], "until_done": "chain"}
    (folder / "request.json").write_text(json.dumps(request))
    for name, text in {"asked": "1767300000", "answer": job_id, "status": "0"}.items():
        (folder / name).write_text(f"{text}\n")


def test_the_ledger_was_lost(site: SlurmSite) -> None:
    site.settle(EVERYONE)
    site.answers(EVERYONE)
    found = site.types("status")
    assert "found 4 runs on far that this ledger did not know" in found.stderr
    trips = site.round_trips()
    document = site.status()
    assert site.round_trips() - trips == 1
    assert states(document) == ["RUNNING", "PENDING", "COMPLETED", "FAILED"]
    assert document["found"] == {}
    with site.ledger() as ledger:
        kept = {run.run_id: replace(run, last="", state="") for run in ledger.runs()}
    assert kept == {m.run_id: replace(site.entry(m), last="", state="") for m in EVERYONE}


def test_the_clock_of_another_laptop_does_not_make_its_runs_the_last(site: SlurmSite) -> None:
    site.settle([DONE, FAILED])
    site.remember([RUNNING])
    site.settle([RUNNING])
    site.answers([DONE, FAILED, RUNNING])
    for member, ago in ((DONE, 60), (FAILED, 3600)):
        folder = site.root / "runs" / member.run_id
        described = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**described, "created": "2099-01-01T00:00:00Z"}))
        (folder / "submissions/0/asked").write_text(f"{int(time.time()) - ago}\n")
    order = [FAILED.run_id, DONE.run_id, RUNNING.run_id]
    assert [run["run_id"] for run in site.status()["runs"]] == order
    assert [run["run_id"] for run in site.status()["runs"]] == order
    assert [run["run_id"] for run in site.status("last")["runs"]] == [RUNNING.run_id]


def test_runs_of_other_projects_stay_theirs(site: SlurmSite) -> None:
    site.settle([RUNNING, DONE])
    site.answers([RUNNING, DONE])
    path = site.root / "runs" / DONE.run_id / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "project": "somebody's"}, indent=2))
    (site.root / "runs" / "notes").mkdir()
    (site.root / "runs" / "odd\nname").mkdir()
    old = site.root / "runs" / RUNNING.run_id / "run.json"
    old.write_text(json.dumps({**json.loads(old.read_text()), "project": ""}, indent=2))
    assert site.status()["found"] == {"far": 1}
    trips = site.round_trips()
    assert [run["run_id"] for run in site.status("--all")["runs"]] == [RUNNING.run_id]
    assert site.round_trips() - trips == 1


def test_another_laptop_has_resumed_an_ended_run(site: SlurmSite) -> None:
    site.knows([FAILED])
    link(site, FAILED, 1, "900001", "resume")
    row = queue_row(Member(200_001, JobState.PENDING)).replace(Member(200_001, JobState.PENDING).run_id, "")
    site.says("squeue", [f"{row}{FAILED.run_id}.1"])
    run = by_id(site.status())[FAILED.run_id]
    assert (run["state"], run["submission"], run["job_id"]) == ("PENDING", 1, "900001")


def test_a_chain_is_where_its_last_started_link_is(site: SlurmSite) -> None:
    """The next link waits in the queue from the start of the one before it, and goes when not needed."""
    member, after = Member(1, JobState.RUNNING), Member(200_001, JobState.PENDING)
    site.knows([member])
    link(site, member, 1, after.job_id, "chain")
    waits = queue_row(after).replace(after.run_id, f"{member.run_id}.1").replace("Priority", "Dependency")
    site.says("squeue", [queue_row(member), waits])

    def seen() -> tuple[Any, ...]:
        run = by_id(site.status())[member.run_id]
        return run["state"], run["submission"], run["job_id"]

    assert seen() == ("RUNNING", 0, member.job_id)
    attempt = site.root / "runs" / member.run_id / "attempts"
    ending = {"code": 85, "signal": "USR1", "why": "requeue", "ended": 1767243600}
    (attempt / "0" / "exit.json").write_text(json.dumps(ending))
    site.says("squeue", [waits])
    assert seen() == ("PENDING", 1, after.job_id)
    (attempt / "1").mkdir()
    start = {"job_id": after.job_id, "started": 1767243700, "submission": 1, "node": "n"}
    (attempt / "1" / "start.json").write_text(json.dumps(start))
    third = Member(300_001, JobState.PENDING)
    link(site, member, 2, third.job_id, "chain")
    gone = queue_row(third).replace(third.run_id, f"{member.run_id}.2").replace("PENDING", "CANCELLED")
    (attempt / "1" / "exit.json").write_text(json.dumps(ending | {"code": 0, "why": "completed"}))
    site.says("squeue", [gone])
    assert seen() == ("COMPLETED", 1, after.job_id)


def test_of_an_array_one_after_the_other_the_newest_task_tells(site: SlurmSite) -> None:
    member = Member(1, JobState.RUNNING)
    site.knows([member])
    path = site.root / "runs" / member.run_id / "attempts" / "0" / "start.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "job_id": f"{member.job_id}_1"}))
    row = accounting_rows(replace(member, state=JobState.TIMEOUT))[0]
    tasks = [(0, "TIMEOUT"), (1, "NODE_FAIL"), (2, "CANCELLED by 7")]
    rows = [
        row.replace("TIMEOUT", state).replace(member.job_id, f"{member.job_id}_{task}")
        for task, state in tasks
    ]
    site.says("squeue")
    site.says("sacct", rows)
    run = by_id(site.status())[member.run_id]
    assert (run["state"], run["job_id"]) == ("NODE_FAIL", member.job_id)


def test_a_submission_that_broke_off_is_settled(site: SlurmSite) -> None:
    site.settle([WAITING])
    with site.ledger() as ledger:
        ledger.add(replace(site.entry(WAITING), state="SUBMITTING", job_id=""))
    site.answers([WAITING])
    run = by_id(site.status())[WAITING.run_id]
    assert (run["state"], run["job_id"]) == ("PENDING", WAITING.job_id)


def test_a_job_id_that_came_back_as_something_else(site: SlurmSite) -> None:
    """As after a controller has lost its state: ids begin anew, and this one is somebody's other job."""
    site.settle([DONE])
    site.remember([DONE], asked=False)
    other = replace(Member(3, JobState.RUNNING), group="another-job")
    site.answers([other])
    assert states(site.status()) == ["COMPLETED"]


def test_a_later_job_of_the_same_run_and_of_a_group_are_the_runs_own(site: SlurmSite) -> None:
    member = Member(6, JobState.PENDING, group="sweep-1")
    site.knows([WAITING, member])
    rows = [queue_row(WAITING).replace(WAITING.run_id, f"{WAITING.run_id}.1"), queue_row(member)]
    site.says("squeue", rows)
    assert states(site.status()) == ["PENDING", "PENDING"]
