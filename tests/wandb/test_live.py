"""Uploading runs that go on: each step once, and the scheduler's word on how they end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterkit.results.logs.wandb import HEADER
from clusterkit.wandb.ledger import RunUpload, SqliteUploads, UploadState
from clusterkit.wandb.plan import UploadOutcome
from clusterkit.wandb.server import Credentials
from clusterkit.wandb.upload import UploadTarget, upload_runs
from tests.doubles import forked_wandb
from tests.doubles.wandb_server import API_KEY, WandbServer
from tests.sampling import SEED
from tests.wandb.wandb_runs import write_offline_run

pytestmark = pytest.mark.slow  # each upload starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

STARTS = (range(30), range(30, 55), range(55, 80))
"""Steps of the three starts of a run that was requeued twice."""


@pytest.fixture(scope="module")
def three_starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("writer") / "run"
    for steps in STARTS:
        write_offline_run(run_dir, "w1", steps, exit_code=85 if steps is not STARTS[-1] else 0)
    return run_dir


@dataclass
class Bench:
    """A whole run on the cluster, and as much of it here as has been pulled."""

    server: WandbServer
    whole: Path
    here: Path
    ledger: SqliteUploads = field(default_factory=lambda: SqliteUploads(sqlite3.connect(":memory:")))

    def pull(self, start: int, share: float) -> None:
        """Bring the beginning of one start's log, in place."""
        log = sorted(self.whole.glob("wandb/offline-run-*/*.wandb"))[start]
        copy = self.here / log.relative_to(self.whole)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = log.read_bytes()
        copy.write_bytes(data[: len(HEADER) + int(share * (len(data) - len(HEADER)))])

    def upload(self, outcome: UploadOutcome = UploadOutcome.RUNNING) -> RunUpload:
        target = UploadTarget(Credentials(self.server.url, API_KEY))
        (result,) = upload_runs(
            {"r1": self.here}, outcome=lambda _: outcome, target=target, ledger=self.ledger, live=True
        )
        return result

    @property
    def steps(self) -> list[int]:
        return self.server.runs["w1"].arrived_steps

    @property
    def state(self) -> str:
        return self.server.runs["w1"].state


@pytest.fixture
def bench(three_starts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with WandbServer() as server:
        for name, value in (server.client_env(tmp_path) | forked_wandb.variables()).items():
            if name not in ("WANDB_API_KEY", "WANDB_BASE_URL"):
                monkeypatch.setenv(name, value)
        yield Bench(server, three_starts, tmp_path / "run")


def test_a_run_requeued_twice_and_watched_live(bench: Bench) -> None:
    arrived = 0
    for start, share in ((0, 0.4), (0, 0.7), (0, 1.0), (1, 0.5), (1, 1.0), (2, 0.3), (2, 0.9)):
        bench.pull(start, share)
        result = bench.upload()
        assert result.state in (UploadState.LIVE, UploadState.UPLOADED), result.message
        assert result.history == len(bench.steps) - arrived > 0
        arrived = len(bench.steps)
        assert bench.steps == list(range(arrived))
        assert bench.state == "running"
    assert bench.upload().state is UploadState.UP_TO_DATE  # nothing new, nothing sent
    bench.pull(2, 1.0)
    assert bench.upload(UploadOutcome.FINISHED).state is UploadState.UPLOADED
    assert bench.steps == list(range(80))
    assert list(bench.server.runs) == ["w1"]
    assert bench.server.runs["w1"].once
    assert bench.state == "finished"
    assert bench.upload(UploadOutcome.FINISHED).state is UploadState.UP_TO_DATE


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (UploadOutcome.FINISHED, "finished"),  # the scheduler knows better than a log without an end
        (UploadOutcome.FAILED, "failed"),
        (UploadOutcome.PREEMPTED, "preempted"),
        (UploadOutcome.CRASHED, "running"),  # the real server calls it crashed when it stays silent
    ],
)
def test_the_scheduler_says_how_a_run_ended(bench: Bench, outcome: UploadOutcome, state: str) -> None:
    """The log has no exit record, and all that is in it was there before the run ended."""
    bench.pull(0, 0.6)
    assert bench.upload().state is UploadState.LIVE
    arrived = bench.steps
    assert bench.state == "running"
    bench.upload(outcome)
    assert bench.state == state
    assert bench.steps == arrived
    asked = len(bench.server.requests)
    assert bench.upload(outcome).state is UploadState.UP_TO_DATE
    assert len(bench.server.requests) == asked


def test_a_preempted_run_that_goes_on_is_running_and_then_finished(bench: Bench) -> None:
    bench.pull(0, 0.8)
    assert bench.upload(UploadOutcome.PREEMPTED).state is UploadState.UPLOADED
    arrived = len(bench.steps)
    assert bench.state == "preempted"
    bench.pull(1, 0.5)
    bench.upload()
    assert bench.state == "running"
    assert bench.steps[arrived] == STARTS[1].start
    bench.pull(1, 1.0)
    bench.upload(UploadOutcome.FINISHED)
    assert bench.state == "finished"
    assert bench.server.runs["w1"].once


def test_a_first_log_that_comes_late_is_sent_behind_the_second(bench: Bench) -> None:
    """Each log's own steps are counted: the rest of the first is no part of the second."""
    bench.pull(0, 0.5)
    bench.upload()
    bench.pull(1, 0.5)
    bench.upload()
    bench.pull(0, 1.0)
    bench.pull(1, 1.0)
    assert bench.upload(UploadOutcome.FAILED).state is UploadState.UPLOADED
    assert sorted(row["loss"] for row in bench.server.runs["w1"].arrived) == sorted(
        1.0 / (1 + step) for step in range(STARTS[1].stop)
    )


def test_steps_that_a_start_repeats_are_kept(bench: Bench, tmp_path: Path) -> None:
    """Killed without a warning, a run goes on from a checkpoint: the client moves W&B's own axis."""
    bench.whole = tmp_path / "whole"
    write_offline_run(bench.whole, "w1", range(20), exit_code=1)
    write_offline_run(bench.whole, "w1", range(12, 40))
    for start, share in ((0, 0.6), (0, 1.0), (1, 0.3), (1, 0.6)):
        bench.pull(start, share)
        bench.upload()
    bench.pull(1, 1.0)
    bench.upload(UploadOutcome.FINISHED)
    run = bench.server.runs["w1"]
    wanted = [1.0 / (1 + step) for step in (*range(20), *range(12, 40))]
    assert [row["loss"] for row in run.history] == wanted
    assert len(run.arrived) == len(wanted)
    assert run.once
    assert bench.steps == sorted(bench.steps)


def test_a_success_that_the_scheduler_denies(bench: Bench) -> None:
    for start in range(3):
        bench.pull(start, 1.0)
    bench.upload(UploadOutcome.FAILED)
    assert bench.state == "failed"
    assert bench.steps == list(range(80))


def test_without_a_count_only_the_ledgers_rest_is_sent(bench: Bench) -> None:
    bench.pull(0, 0.5)
    bench.upload()
    bench.server.fail("RunResumeStatus", 400, count=1)  # the client asks the same, after us
    bench.pull(0, 1.0)
    assert bench.upload(UploadOutcome.FINISHED).state is UploadState.UPLOADED
    assert bench.steps == list(range(30))
    assert bench.server.runs["w1"].once


@dataclass
class Killed:
    """Uploads in processes of their own, most of which do not end well."""

    bench: Bench
    ledger: Path

    def start(self, point: int = 0, outcome: UploadOutcome = UploadOutcome.RUNNING) -> subprocess.Popen[str]:
        environment = {**os.environ, "WANDB_BASE_URL": self.bench.server.url, "WANDB_API_KEY": API_KEY}
        environment["TMPDIR"] = str(self.ledger.parent / "stages")
        argv = [sys.executable, "-m", "tests.doubles.upload_killed", str(point), str(self.ledger)]
        return subprocess.Popen(
            [*argv, str(self.bench.here), outcome], env=environment, stdout=subprocess.PIPE, text=True
        )

    def at_request(self, number: int, *, client_too: bool) -> bool:
        """Kill the sync, and perhaps its client, when the server has answered so many requests of it."""
        before = len(self.bench.server.requests)
        sync = self.start()
        while len(self.bench.server.requests) < before + number and sync.poll() is None:
            time.sleep(0.005)
        clients = children(sync.pid)
        with contextlib.suppress(ProcessLookupError):
            sync.kill()
            for pid in clients if client_too else []:
                os.kill(pid, signal.SIGKILL)
        sync.communicate(timeout=200)
        return sync.returncode == -signal.SIGKILL


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


POINTS = range(20)
"""Even ones end a sync before a call, odd ones after an answer to it, half of them with its client."""
KINDS = (POINTS[0:7:2], POINTS[8:13:2], POINTS[14::2], POINTS[1::4], POINTS[3::4])


@pytest.mark.needs("procfs")
@pytest.mark.parametrize("kinds", [KINDS, pytest.param([POINTS], marks=pytest.mark.exhaustive)])
def test_a_sync_that_is_killed_again_and_again(
    bench: Bench, tmp_path: Path, kinds: Sequence[Sequence[int]]
) -> None:
    """While the run is watched; each time the next sync goes on, with more steps there."""
    killed = Killed(bench, tmp_path / "ledger.db")
    (tmp_path / "stages").mkdir()
    bench.pull(0, 0.1)
    said, _ = killed.start().communicate(timeout=200)
    calls = int(said.split()[1])
    dice = random.Random(SEED)
    points = sorted(dice.choice(kind) for kind in kinds) if kinds is KINDS else POINTS
    met = seen = 0
    for number in points:
        share = 2.9 * (number + 2) / 21
        for start in range(int(share) + 1):
            bench.pull(start, min(1.0, share - start))
        if number % 2:
            met += killed.at_request(number // 2 + 2, client_too=number % 4 == 1)
        else:
            sync = killed.start(1 + number * calls // 20)
            sync.communicate(timeout=200)
            met += sync.returncode == -signal.SIGKILL
        # What has arrived by now is right whatever the next one does.
        assert bench.steps == list(range(len(bench.steps)))
        seen += len(bench.steps) > 5
    for start in range(3):
        bench.pull(start, 1.0)
    said, _ = killed.start(0, UploadOutcome.FINISHED).communicate(timeout=200)
    assert said.startswith(UploadState.UPLOADED), said
    assert bench.steps == list(range(80))
    assert list(bench.server.runs) == ["w1"]
    assert bench.server.runs["w1"].once
    assert bench.state == "finished"
    assert met == len(points)
    assert not list(tmp_path.glob("stages/clusterkit-wandb-*"))  # those of the killed are cleared away, too
    assert points is not POINTS or seen > 5  # some uploads were hit at work, some after it


def test_an_online_start_that_brought_everything_up_is_asked_about_once(bench: Bench) -> None:
    for start in (0, 1):
        bench.pull(start, 1.0)
    bench.upload(UploadOutcome.FINISHED)
    for folder in list(bench.here.glob("wandb/offline-run-*")):
        folder.rename(folder.with_name(folder.name.removeprefix("offline-")))
    asked = len(bench.server.requests)
    assert bench.upload(UploadOutcome.FINISHED).state is UploadState.UP_TO_DATE
    assert len(bench.server.requests) == asked + 1
    assert bench.upload(UploadOutcome.FINISHED).state is UploadState.UP_TO_DATE
    assert len(bench.server.requests) == asked + 1
    assert bench.server.runs["w1"].once
