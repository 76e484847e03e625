"""sync-results --watch over a real sshd: what comes while runs go on, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.commands.sync import SyncRequest
from clusterkit.commands.sync_watch import PACES, SyncLook, watch_results
from clusterkit.errors import TransportError
from clusterkit.runs.watching import Paces
from tests.doubles.slurm_site import Member, SlurmSite

pytestmark = pytest.mark.slow

RUNNING, WAITING, ENDED = (
    Member(1, JobState.RUNNING),
    Member(2, JobState.PENDING),
    Member(3, JobState.COMPLETED),
)
QUICK = Paces(scheduler=0.6, heartbeat=0.3, login=0.2)


@pytest.fixture
def site(site: SlurmSite) -> SlurmSite:
    site.knows([RUNNING, WAITING, ENDED])
    return site


@pytest.fixture
def looks(site: SlurmSite) -> Iterator[Iterator[SyncLook]]:
    settings = site.settings()
    request = SyncRequest(wandb=False)
    with site.ledger() as ledger:
        yield watch_results(
            settings, request, ledger, bar=lambda *_: nullcontext(lambda _: None), paces=QUICK
        )


def log(site: SlurmSite, text: str) -> None:
    path = site.root / "runs" / RUNNING.run_id / "attempts/0/log"
    with path.open("a") as file:
        file.write(text)


def here(site: SlurmSite, member: Member, path: str) -> Path:
    return site.project / "results" / member.run_id / path


def end(site: SlurmSite) -> None:
    done = [replace(member, state=JobState.COMPLETED) for member in (RUNNING, WAITING)]
    site.settle(done)
    site.answers([*done, ENDED])


def test_tails_come_while_it_runs_and_the_end_comes_whole(site: SlurmSite, looks: Iterator[SyncLook]) -> None:
    log(site, "first\n")
    next(looks)
    assert here(site, ENDED, "attempts/0/exit.json").exists()  # the first look brings everything
    reader = here(site, RUNNING, "attempts/0/log").open()
    for word in ("second\n", "third\n"):
        reader.read()
        log(site, word)
        look = next(looks)
        assert reader.read() == word  # in place: a reader keeps its handle
        assert [run.run_id for run in look.news] == [RUNNING.run_id]
    reader.close()
    assert next(looks).news == ()
    calls = site.calls()["squeue"]
    log(site, "last words\n")
    end(site)
    *_, last = looks
    assert here(site, RUNNING, "attempts/0/log").read_text() == "first\nsecond\nthird\nlast words\n"
    assert here(site, RUNNING, "attempts/0/exit.json").exists()
    assert here(site, WAITING, "attempts/0/exit.json").exists()
    assert last.watched.over
    assert {run.run_id for run in last.synced.runs} == {one.run_id for one in (RUNNING, WAITING, ENDED)}
    assert site.server.accepted_logins() == 1
    assert site.calls()["squeue"] <= calls + 2


def test_a_broken_connection_loses_nothing(
    site: SlurmSite, looks: Iterator[SyncLook], capfd: pytest.CaptureFixture[str]
) -> None:
    log(site, "first\n")
    next(looks)
    log(site, "second\n")
    site.server.drop_connections()
    end(site)
    *_, last = looks
    assert here(site, RUNNING, "attempts/0/log").read_text() == "first\nsecond\n"
    assert here(site, RUNNING, "attempts/0/exit.json").exists()
    assert site.server.accepted_logins() == 2
    assert not last.watched.report.silent
    assert capfd.readouterr().err == ""  # nothing is written into a live view


def test_a_refused_login_ends_it_and_is_said(site: SlurmSite, looks: Iterator[SyncLook]) -> None:
    next(looks)
    site.server.authorized_keys.write_text("")
    site.server.drop_connections()
    with pytest.raises(TransportError, match="far"):
        list(looks)


def test_trackers_get_what_each_look_brings_and_one_that_failed_catches_up(site: SlurmSite) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    settings = site.settings()
    boards = site.project / "boards"
    request = SyncRequest(wandb=False, trackers={"tensorboard": str(boards)})

    def log_step(step: int) -> None:
        with (site.root / "runs" / RUNNING.run_id / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"kind": "train", "step": step, "time": 1.0, "attempt": 0, "x": 1}) + "\n")

    def shown() -> list[int]:
        reader = accumulator.EventAccumulator(str(boards / RUNNING.run_id))
        reader.Reload()
        return [one.step for one in reader.Scalars("train/x")]

    with site.ledger() as ledger:
        looks = watch_results(
            settings, request, ledger, bar=lambda *_: nullcontext(lambda _: None), paces=QUICK
        )
        log_step(1)
        assert next(looks).synced.tracked[0].runs == (RUNNING.run_id,)
        assert shown() == [1]
        log_step(2)
        boards.rename(site.project / "aside")
        boards.write_text("a file")
        assert next(looks).synced.tracked[0].error is not None
        boards.unlink()
        (site.project / "aside").rename(boards)
        assert next(looks).synced.tracked[0].error is None  # nothing new has come
        assert shown() == [1, 2]
        end(site)
        log_step(3)
        *_, last = looks
        assert [one.runs for one in last.synced.tracked] == [(RUNNING.run_id,)]
        assert shown() == [1, 2, 3]


def test_it_asks_slurm_no_more_than_status_does() -> None:
    assert PACES.scheduler >= Paces().scheduler
    assert PACES.heartbeat >= 30


def test_the_command_with_nothing_running(site: SlurmSite) -> None:
    done = site.types("sync-results", "--watch", "--no-wandb", ENDED.run_id)
    assert "files" in done.stdout
    assert here(site, ENDED, "run.json").exists()
    assert site.calls() == {}
    assert site.server.accepted_logins() == 1


def test_what_w_and_b_still_needs_is_counted_once_and_tried_again(site: SlurmSite) -> None:
    log_file = site.root / "runs" / RUNNING.run_id / "wandb/offline-run-1/run-1.wandb"
    log_file.parent.mkdir(parents=True)
    environment = {"NETRC": str(site.project / "none"), "WANDB_CONFIG_DIR": str(site.project)}
    settings = site.settings()
    with site.ledger() as ledger:
        looks = watch_results(
            settings,
            SyncRequest(),
            ledger,
            bar=lambda *_: nullcontext(lambda _: None),
            environment=environment,
            paces=QUICK,
        )
        for text in ("more\n", "and more\n", "still more\n"):
            with log_file.open("a") as file:
                file.write(text)
            synced = next(looks).synced
        assert synced.waiting_for_key == 1
        environment["WANDB_BASE_URL"] = "nowhere"
        with log_file.open("a") as file:
            file.write("the last\n")
        assert next(looks).synced.wandb_error is not None
        del environment["WANDB_BASE_URL"]
        assert next(looks).synced.wandb_error is None  # nothing new has come
