"""status --watch over a real sshd: how often Slurm is asked, over how many connections, and when it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.runs.watching import LONGEST_PAUSE, LookPace, Paces, Watched, watch
from tests.doubles.person import type_at_terminal
from tests.doubles.slurm_site import Member, SlurmSite, queue_row
from tests.waiting import until

RUNNING, WAITING = Member(1, JobState.RUNNING), Member(2, JobState.PENDING)
QUICK = Paces(scheduler=1.0, heartbeat=0.2, login=0.2, local=0.05)


@pytest.fixture
def site(site: SlurmSite) -> SlurmSite:
    site.knows([RUNNING, WAITING])
    return site


@pytest.fixture
def looks(site: SlurmSite) -> Iterator[Iterator[Watched]]:
    with site.ledger() as ledger:
        yield watch(site.settings(), ledger, paces=QUICK)


def states(watched: Watched) -> list[str]:
    return [row.state.state.value for row in watched.report.rows]


def asked(site: SlurmSite) -> bool:
    """Whether the ledger has learned something."""
    with site.ledger() as ledger:
        return any(run.last for run in ledger.runs())


def end(site: SlurmSite) -> None:
    """Let both runs complete."""
    done = [replace(member, state=JobState.COMPLETED) for member in (RUNNING, WAITING)]
    site.settle(done)
    site.answers(done)


def test_the_pace() -> None:
    pace = LookPace(30.0)
    pauses = []
    for seconds, failed in ((1, False), (6, False), (1, True), (20, True), (1, True), (1, True), (4, False)):
        pace.after(seconds, failed=failed)
        pauses.append(pace.pause)
    assert pauses == [30, 60, 120, 240, LONGEST_PAUSE, LONGEST_PAUSE, 30]


@pytest.mark.slow
def test_heartbeats_are_read_between_two_questions(site: SlurmSite, looks: Iterator[Watched]) -> None:
    began = time.monotonic()
    progress = []
    for number in range(12):
        site.beat(RUNNING, step=number * 100_000)
        progress.append(next(looks).report.rows[0].state.progress)
    questions = 1 + int(time.monotonic() - began)
    assert progress == [number / 20 for number in range(12)]
    assert 2 <= site.calls()["squeue"] <= questions
    assert site.calls()["sacct"] == 0
    assert site.server.accepted_logins() == 1


def test_it_ends_by_itself_and_the_last_look_shows_the_end(site: SlurmSite, looks: Iterator[Watched]) -> None:
    assert states(next(looks)) == ["RUNNING", "PENDING"]
    end(site)
    *_, last = looks
    assert states(last) == ["COMPLETED", "COMPLETED"]
    assert last.over
    with site.ledger() as ledger:
        assert [run.state for run in ledger.runs()] == ["COMPLETED", "COMPLETED"]


def test_it_ends_when_another_command_has_seen_the_end(site: SlurmSite, looks: Iterator[Watched]) -> None:
    assert not next(looks).over
    end(site)
    with site.ledger() as ledger:
        ledger.set_states([(run.run_id, "COMPLETED") for run in ledger.runs()])
    last = next(looks)
    assert (states(last), last.over) == (["COMPLETED", "COMPLETED"], True)


def test_a_run_submitted_meanwhile_joins(site: SlurmSite, looks: Iterator[Watched]) -> None:
    assert len(states(next(looks))) == 2
    new = Member(3, JobState.PENDING)
    site.settle([new])
    site.remember([new])
    site.answers([RUNNING, WAITING, new])
    deadline = time.monotonic() + 100
    while states(watched := next(looks)) != ["RUNNING", "PENDING", "PENDING"] or watched.report.mute:
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_job_that_the_scheduler_has_not_told_of_yet_is_not_judged(
    site: SlurmSite, looks: Iterator[Watched]
) -> None:
    next(looks)
    site.resume(RUNNING, "800001")
    site.says("squeue", [queue_row(WAITING), queue_row(RUNNING).replace(RUNNING.job_id, "800001")])
    while (state := next(looks).report.rows[0].state).job_id != "800001":
        assert state.state is JobState.RUNNING
    assert (state.state, state.submission, state.attempt) == (JobState.RUNNING, 1, 1)


@pytest.mark.slow
def test_it_backs_off_while_the_controller_is_down(site: SlurmSite, looks: Iterator[Watched]) -> None:
    next(looks)
    site.says("squeue", error="slurm_load_jobs error: Unable to contact slurm controller")
    site.says("sacct", error="down")
    while not (watched := next(looks)).report.mute:
        pass
    assert states(watched) == ["RUNNING", "PENDING"]
    began, calls = time.monotonic(), site.calls()["squeue"]
    while site.calls()["squeue"] == calls:
        next(looks)
    assert time.monotonic() - began > 1.5  # and 1 second when all is well
    site.answers([RUNNING, WAITING])
    while (watched := next(looks)).report.mute:
        pass
    assert watched.next_question["far"] <= 1.0


@pytest.mark.slow
def test_half_an_answer_is_asked_for_again(site: SlurmSite, looks: Iterator[Watched]) -> None:
    next(looks)
    whole = (site.bin / "squeue").read_text()
    site.tool("squeue", "pid=$PPID\nfor up in 1 2; do pid=$(ps -o ppid= -p $pid); kill -9 $pid; done")
    while not (watched := next(looks)).report.silent:
        pass
    assert "last known" in str(watched.report.rows[0].state.why)
    (site.bin / "squeue").write_text(whole)
    while (watched := next(looks)).report.silent:
        assert states(watched) == ["RUNNING", "PENDING"]
    assert watched.report.rows[0].state.why is None


@pytest.mark.slow
def test_at_a_terminal_ctrl_c_leaves_the_table_and_the_terminal_as_they_should_be(site: SlurmSite) -> None:
    env = {**os.environ, "HOME": str(site.folder), "COLUMNS": "120", "LINES": "30", "TERM": "xterm-256color"}
    keys = iter(["\x03"])
    stops = "Ctrl-C stops watching"
    words = ["status", "--watch"]
    done = type_at_terminal(words, {stops: lambda: next(keys, "")}, folder=site.project, environment=env)
    assert done.returncode == 130
    assert "Traceback" not in done.stdout
    after = done.stdout.rpartition(stops)[2]
    assert RUNNING.run_id in after
    assert "\x1b[?25h" in after  # the cursor is back


@pytest.mark.slow
def test_without_a_terminal_it_tells_what_has_changed(site: SlurmSite) -> None:
    with site.command("status", "--watch", RUNNING.run_id) as process:
        until(lambda: asked(site))
        end(site)
        printed, errors = process.communicate(timeout=100)
    assert process.returncode == 0
    assert errors.splitlines()[0].startswith(f"{RUNNING.run_id}  RUNNING")
    assert f"{RUNNING.run_id}  COMPLETED" in errors
    assert "COMPLETED" in printed
    assert WAITING.run_id not in printed


def test_a_run_that_has_ended_is_shown_and_nobody_is_asked(site: SlurmSite) -> None:
    done = Member(3, JobState.COMPLETED)
    site.remember([done])
    with site.ledger() as ledger:
        (only,) = watch(site.settings(), ledger, names=[done.run_id], paces=QUICK)
    assert only.over
    assert states(only) == ["COMPLETED"]
    assert only.report.silent == {}
    assert site.calls() == {}


def test_a_cluster_that_is_not_configured_any_more_is_named(site: SlurmSite) -> None:
    lost = replace(site.entry(Member(3, JobState.RUNNING)), cluster="gone")
    with site.ledger() as ledger:
        ledger.add(lost)
        (only,) = watch(site.settings(), ledger, names=[lost.run_id], paces=QUICK)
    assert only.over
    assert only.report.silent == {"gone": "it is not configured here"}


@pytest.mark.needs("sshd")
def test_nothing_to_watch(tmp_path: Path) -> None:
    with closing(SlurmSite(tmp_path / "other")) as site:
        shown = site.types("status", "--watch")
        assert "no runs yet" in shown.stderr
        assert site.calls() == {}
