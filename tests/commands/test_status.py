"""status over a real sshd, with real run directories; squeue and sacct say what each test wants."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from tests.doubles.slurm_site import (
    DONE,
    EVERYONE,
    RUNNING,
    WAITING,
    Member,
    SlurmSite,
    accounting_rows,
    by_id,
    states,
)

pytestmark = pytest.mark.slow


def test_one_round_trip_and_nobody_asks_about_what_has_ended(site: SlurmSite) -> None:
    site.knows(EVERYONE)
    assert states(site.status()) == ["RUNNING", "PENDING", "COMPLETED", "FAILED"]
    assert (site.round_trips(), site.calls()) == (1, {"squeue": 1})
    assert site.server.accepted_logins() == 1
    site.answers([replace(RUNNING, state=JobState.FAILED), *EVERYONE[1:]])
    site.status()
    assert (site.round_trips(), site.calls()) == (2, {"squeue": 2, "sacct": 1})
    assert f"-j {RUNNING.job_id} " in (site.folder / "calls").read_text()


def test_what_a_running_and_a_waiting_run_tell(site: SlurmSite) -> None:
    site.knows(EVERYONE)
    run = by_id(site.status())
    running, waiting = run[RUNNING.run_id], run[WAITING.run_id]
    assert (running["progress"], running["gpu"], running["node"]) == (0.25, 0.61, "node1")
    assert (running["elapsed_seconds"], running["limit_seconds"]) == (3600, 86400)
    assert running["eta_seconds"] == pytest.approx(1_500_000 / 400, abs=60)
    assert running["outlook"] is None
    assert waiting["why"] == "jobs with a higher priority are ahead of it"
    assert waiting["expected_start"] - waiting["updated"] == pytest.approx(7200, abs=120)


def test_the_end_is_final_and_kept(site: SlurmSite) -> None:
    site.knows([RUNNING])
    ended = replace(RUNNING, state=JobState.FAILED)
    site.settle([ended])
    site.answers([ended])
    first = by_id(site.status())[RUNNING.run_id]
    assert (first["state"], first["why"]) == ("FAILED", "the program ended with exit code 1")
    assert first["final"]
    shutil.rmtree(site.root / "runs" / RUNNING.run_id)
    site.says("sacct")
    assert by_id(site.status())[RUNNING.run_id] == first
    assert site.calls()["sacct"] == 1


def test_the_controller_is_down(site: SlurmSite) -> None:
    silent = Member(5, JobState.RUNNING)
    members = [RUNNING, WAITING, silent]
    site.knows(members)
    before = by_id(site.status())
    site.beat(silent, time=1.0)
    site.says("squeue", error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    site.says("sacct", error="sacct: error: Connection refused")
    down = site.status()
    run = by_id(down)
    assert "Unable to contact" in down["mute"]["far"]
    assert run[RUNNING.run_id]["state"] == "RUNNING"
    assert run[RUNNING.run_id]["why"].startswith("according to its heartbeat; squeue failed")
    assert run[WAITING.run_id]["state"] == "PENDING"
    assert re.match(r"last known \d+ s ago; squeue failed", run[WAITING.run_id]["why"])
    assert run[WAITING.run_id]["updated"] == before[WAITING.run_id]["updated"]
    assert run[silent.run_id]["stale"]
    assert "the scheduler of far does not answer" in site.types("status").stderr
    site.answers(members)
    assert by_id(site.status())[WAITING.run_id]["why"] == "jobs with a higher priority are ahead of it"


def test_a_run_that_has_ended_while_the_controller_was_down(site: SlurmSite) -> None:
    """By its exit record alone a failure is not final: Slurm may know that memory was the cause."""
    site.knows([RUNNING])
    site.settle([replace(RUNNING, state=JobState.FAILED)])
    site.says("squeue", error="down")
    site.says("sacct", error="down")
    run = by_id(site.status())[RUNNING.run_id]
    assert (run["state"], run["final"]) == ("FAILED", False)
    site.answers([replace(RUNNING, state=JobState.OUT_OF_MEMORY)])
    run = by_id(site.status())[RUNNING.run_id]
    assert (run["state"], run["final"]) == ("OUT_OF_MEMORY", True)


def test_the_cluster_cannot_be_reached(site: SlurmSite) -> None:
    site.knows(EVERYONE)
    before = by_id(site.status())
    site.close()
    away = site.status()
    run = by_id(away)
    assert list(away["silent"]) == ["far"]
    assert states(away) == ["RUNNING", "PENDING", "COMPLETED", "FAILED"]
    assert re.fullmatch(r"last known \d+ s ago", run[RUNNING.run_id]["why"])
    assert (run[RUNNING.run_id]["progress"], run[RUNNING.run_id]["eta_seconds"]) == (0.25, None)
    assert run[DONE.run_id] == before[DONE.run_id]
    assert "far does not answer" in site.types("status").stderr


def test_a_job_of_another_laptop_that_has_left_the_queue(site: SlurmSite) -> None:
    """The ledger knows the run's first job; of the second only the run directory and accounting know."""
    site.knows([RUNNING])
    site.resume(RUNNING, "800001")
    site.says("squeue")
    rows = (site.folder / "sacct.out").read_text()
    ended = accounting_rows(replace(RUNNING, state=JobState.OUT_OF_MEMORY))
    site.says("sacct", [row.replace(RUNNING.job_id, "800001") for row in ended])
    (site.folder / "first.out").write_text(rows)
    tool = (site.bin / "sacct").read_text()
    choose = f'case "$*" in *800001*) ;; *) cat {site.folder}/first.out; exit ;; esac\n'
    (site.bin / "sacct").write_text(tool.replace("\ncat ", f"\n{choose}cat ", 1))
    run = by_id(site.status())[RUNNING.run_id]
    assert (run["state"], run["job_id"], run["submission"]) == ("OUT_OF_MEMORY", "800001", 1)
    assert site.calls() == {"squeue": 2, "sacct": 2}


def test_filters(site: SlurmSite) -> None:
    members = [*EVERYONE, Member(7, JobState.RUNNING, group="sweep-1")]
    site.knows(members)
    assert states(site.status("--state", "running,failed")) == ["RUNNING", "FAILED", "RUNNING"]
    assert states(site.status("--state", "ended")) == ["COMPLETED", "FAILED"]
    assert states(site.status("--group", "sweep")) == ["RUNNING"]
    assert states(site.status("--name", "a40-2m", "--profile", "other")) == []
    assert states(site.status("--since", "2026-01-02")) == []
    assert len(states(site.status("--since", "2025-12-30"))) == 5
    assert site.status("--cluster", "far")["left_out"] == 0
    assert "running" in site.types("status", "--state", "runing", code=3).stderr
    assert "2026-01-31" in site.types("status", "--since", "yesterday", code=3).stderr
    assert "there is no cluster" in site.types("status", "--cluster", "afar", code=3).stderr


def test_groups_are_one_line(site: SlurmSite) -> None:
    kinds = [JobState.RUNNING] * 3 + [JobState.COMPLETED] * 4 + [JobState.FAILED]
    members = [Member(number, state, group="sweep-lr") for number, state in enumerate(kinds, 10)]
    site.knows(
        [*members, Member(30, JobState.RUNNING, group="pair"), Member(31, JobState.PENDING, group="pair")]
    )
    shown = site.types("status").stdout
    (line,) = [line for line in shown.splitlines() if "sweep-lr" in line]
    assert re.search("8 runs .* 3 running, 4 completed, 1 failed", line)
    assert "71% of 16M" in line
    assert len(shown.splitlines()) < 8
    assert all(member.run_id in site.types("status", "--expand").stdout for member in members)
    document = site.status()
    assert document["groups"][0] == {
        "group": "sweep-lr",
        "clusters": ["far"],
        "runs": [member.run_id for member in members],
        "states": {"RUNNING": 3, "COMPLETED": 4, "FAILED": 1},
        "progress": pytest.approx(0.25 * 3 / 8 + 5 / 8),
        "best": None,
    }


def test_the_json_is_as_documented(site: SlurmSite) -> None:
    site.knows([*EVERYONE, Member(9, JobState.RUNNING, group="one")])
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text().split("## JSON")[1]
    tables = [re.findall(r"^- `(\w+)`: ", part, re.MULTILINE) for part in page.split("###")]
    document = site.status()
    assert set(tables[0]) == set(document)
    for run in document["runs"]:
        assert set(tables[1]) == set(run)
    assert set(tables[2]) == set(document["groups"][0])
    assert document["schema"] == 3
    assert all(f"`{state}`" in page for state in JobState)
