"""Uploading pulled runs with the real wandb client to a stand-in server that counts every step."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import WandbError
from clusterkit.wandb import client, upload
from clusterkit.wandb.ledger import RunUpload, SqliteUploads, UploadState
from clusterkit.wandb.plan import UploadOutcome
from clusterkit.wandb.server import Credentials
from clusterkit.wandb.upload import UploadTarget, upload_runs
from tests.doubles import forked_wandb
from tests.doubles.wandb_server import API_KEY, HANG, WandbServer
from tests.wandb.wandb_runs import write_offline_run

pytestmark = pytest.mark.slow  # each upload starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

SPLIT, STEPS = 40, 60
SETTLING = upload._SETTLING_SECONDS


@pytest.fixture(scope="module")
def two_starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of a program that was started twice under one W&B run id."""
    run_dir = tmp_path_factory.mktemp("writer") / "run"
    write_offline_run(run_dir, "w1", range(SPLIT))
    write_offline_run(run_dir, "w1", range(SPLIT, STEPS))
    return run_dir


@dataclass
class Bench:
    """A server, a ledger, and one run directory with the logs of one or two starts."""

    server: WandbServer
    run_dir: Path
    ledger: SqliteUploads = field(default_factory=lambda: SqliteUploads(sqlite3.connect(":memory:")))
    outcome: UploadOutcome = UploadOutcome.FINISHED

    @property
    def logs(self) -> list[Path]:
        return sorted(self.run_dir.glob("wandb/offline-run-*/*.wandb"))

    @property
    def steps(self) -> list[int]:
        return self.server.runs["w1"].arrived_steps

    def upload(self, **how: Any) -> RunUpload:
        (result,) = self.uploads({"r1": self.run_dir}, **how)
        return result

    def uploads(self, runs: Mapping[str, Path], **how: Any) -> list[RunUpload]:
        """What comes of several runs, with arguments of `upload_runs`."""
        target = UploadTarget(Credentials(self.server.url, API_KEY))
        given = {"outcome": lambda _: self.outcome, "target": target, "ledger": self.ledger, **how}
        return list(upload_runs(runs, **given))


LATE = "runfiles: called UploadNow() after Finish()"
"""What the client says of a log in which it wrote a record after the exit code's, as it does in some runs."""


@pytest.fixture
def bench(two_starts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with WandbServer() as server:
        for name, value in (server.client_env(tmp_path) | forked_wandb.variables()).items():
            if name not in ("WANDB_API_KEY", "WANDB_BASE_URL"):
                monkeypatch.setenv(name, value)
        # A user's own settings must not bend an upload.
        monkeypatch.setenv("WANDB_MODE", "disabled")
        monkeypatch.setattr(upload, "_SETTLING_SECONDS", 0.05)  # nothing of a client that ended goes on
        yield Bench(server, shutil.copytree(two_starts, tmp_path / "run", symlinks=True))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def keep_only_first_log(bench: Bench) -> Path:
    shutil.rmtree(bench.logs[1].parent)
    (log,) = bench.logs
    return log


def test_all_starts_of_a_run_arrive_as_one_run(bench: Bench) -> None:
    result = bench.upload()
    assert result.state is UploadState.UPLOADED, result.message
    assert (result.logs, result.history) == (2, STEPS)
    assert result.message in ("", LATE)
    assert bench.steps == list(range(STEPS))
    assert bench.server.runs["w1"].once
    assert bench.server.runs["w1"].state == "finished"
    assert "config.yaml" in bench.server.runs["w1"].files
    assert result.url == f"{bench.server.url}/standin/demo/runs/w1"


def test_a_log_in_any_folder_of_the_run_arrives(bench: Bench) -> None:
    """As that of `wandb.init(dir=...)`; one in a folder of checkpoints would be a copy."""
    bench.run_dir = bench.run_dir.rename(bench.run_dir.parent / "moved")
    deep = bench.run_dir / "out" / "logs"
    deep.mkdir(parents=True)
    (bench.run_dir / "wandb").rename(deep / "wandb")
    (bench.run_dir / "again").symlink_to(deep)
    result = bench.upload()
    assert (result.state, result.logs) == (UploadState.UPLOADED, 2), result.message
    assert bench.steps == list(range(STEPS))
    assert bench.upload().state is UploadState.UP_TO_DATE


def test_nothing_is_sent_twice_and_nothing_is_left_behind(bench: Bench) -> None:
    before = contents(bench.run_dir)
    bench.upload()
    asked = len(bench.server.requests)
    assert bench.upload().state is UploadState.UP_TO_DATE
    assert len(bench.server.requests) == asked
    assert contents(bench.run_dir) == before


def test_a_client_as_users_start_it_leaves_nothing_in_the_folder_for_temporary_files(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in forked_wandb.variables():
        monkeypatch.delenv(name)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert bench.upload().state is UploadState.UPLOADED
    assert list(temporary.iterdir()) == []


def test_a_run_whose_files_cannot_be_read_is_named_and_the_others_go_on(bench: Bench) -> None:
    bad = shutil.copytree(bench.run_dir, bench.run_dir.with_name("bad"))
    log = bad / bench.logs[0].relative_to(bench.run_dir)
    log.unlink()
    log.mkdir()
    worse = shutil.copytree(bench.run_dir, bench.run_dir.with_name("worse"))
    (worse / "wandb" / bench.logs[0].parent.name / "files" / "loop").symlink_to("loop")
    results = bench.uploads({"bad": bad, "worse": worse, "good": bench.run_dir})
    states = {result.run_id: result for result in results}
    assert states["bad"].state is UploadState.FAILED
    assert str(log) in states["bad"].message
    assert states["worse"].state is UploadState.FAILED
    assert "loop" in states["worse"].message
    assert states["good"].state is UploadState.UPLOADED, states["good"].message


def test_without_a_ledger_the_server_is_asked(bench: Bench) -> None:
    bench.upload()
    bench.ledger = SqliteUploads(sqlite3.connect(":memory:"))
    result = bench.upload()
    assert (result.state, result.history) == (UploadState.UPLOADED, 0)
    assert bench.steps == list(range(STEPS))


def test_a_refused_history_is_a_failure_and_tried_again(bench: Bench) -> None:
    """The client calls this a success: exit 0, "Finished syncing", marker written."""
    bench.server.fail("file_stream", 401)
    result = bench.upload()
    assert result.state is UploadState.FAILED
    assert "refused the history: 401" in result.message
    assert bench.server.runs["w1"].arrived == []
    bench.server.faults.clear()
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.steps == list(range(STEPS))
    assert bench.server.runs["w1"].once


def test_only_the_rest_follows_a_history_that_broke_off(bench: Bench) -> None:
    bench.server.fail("file_stream", 401, after=2)
    assert bench.upload().state is UploadState.FAILED
    arrived = len(bench.steps)
    assert 0 < arrived < STEPS
    bench.server.faults.clear()
    result = bench.upload()
    assert (result.state, result.history) == (UploadState.UPLOADED, STEPS - arrived)
    assert bench.steps == list(range(STEPS))
    assert bench.server.runs["w1"].state == "finished"


def test_a_passing_fault_is_no_failure(bench: Bench) -> None:
    bench.server.fail("file_stream", 500, count=1)
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.server.runs["w1"].once


def test_refused_files_are_reported_but_not_sent_again(bench: Bench) -> None:
    bench.server.fail("PUT", 403)
    result = bench.upload()
    assert result.state is UploadState.UPLOADED
    assert "403" in result.message
    assert bench.upload().state is UploadState.UP_TO_DATE
    assert bench.server.runs["w1"].once


def test_a_torn_log_of_a_dead_run_is_cut(bench: Bench) -> None:
    log = keep_only_first_log(bench)
    log.write_bytes(log.read_bytes()[:-2000])
    bench.outcome = UploadOutcome.FAILED
    assert bench.upload().state is UploadState.UPLOADED
    run = bench.server.runs["w1"]
    assert run.arrived_steps == list(range(len(run.arrived_steps)))
    assert 0 < len(run.arrived_steps) < SPLIT
    assert run.state == "failed"


def test_a_torn_first_log_does_not_stop_the_second(bench: Bench) -> None:
    first = bench.logs[0]
    first.write_bytes(first.read_bytes()[:-2000])
    assert bench.upload().state is UploadState.UPLOADED
    run = bench.server.runs["w1"]
    assert run.arrived_steps[-(STEPS - SPLIT) :] == list(range(SPLIT, STEPS))
    assert run.once
    assert run.state == "finished"


def test_an_empty_log_does_not_stop_the_others(bench: Bench) -> None:
    bench.logs[0].write_bytes(bench.logs[0].read_bytes()[:7])
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.steps == list(range(SPLIT, STEPS))


def test_a_run_without_any_record(bench: Bench) -> None:
    for log in bench.logs:
        log.write_bytes(b"")
    assert bench.upload().state is UploadState.NOTHING
    assert bench.server.requests == []


def test_a_running_run_waits_until_it_ends(bench: Bench) -> None:
    log = keep_only_first_log(bench)
    whole = log.read_bytes()
    log.write_bytes(whole[:-2000])
    bench.outcome = UploadOutcome.RUNNING
    assert bench.upload().state is UploadState.RUNNING
    assert bench.server.requests == []
    log.write_bytes(whole)
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.server.runs["w1"].state == "running"  # its log is closed, but the run may be started again


def test_a_requeued_run_sends_its_closed_log_and_then_the_rest(bench: Bench) -> None:
    second = bench.logs[1]
    whole = second.read_bytes()
    second.write_bytes(whole[:-2000])
    bench.outcome = UploadOutcome.RUNNING
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.steps == list(range(SPLIT))
    assert bench.server.runs["w1"].state == "running"
    second.write_bytes(whole)
    bench.outcome = UploadOutcome.FINISHED
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.steps == list(range(STEPS))
    assert bench.server.runs["w1"].once
    assert bench.server.runs["w1"].state == "finished"


def test_a_log_that_grew_after_its_upload_sends_only_the_rest(bench: Bench) -> None:
    log = keep_only_first_log(bench)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    assert bench.upload().state is UploadState.UPLOADED
    arrived = len(bench.steps)
    assert 0 < arrived < SPLIT
    log.write_bytes(whole)
    assert bench.upload().history == SPLIT - arrived
    assert bench.steps == list(range(SPLIT))
    assert bench.server.runs["w1"].state == "finished"


def test_damage_in_the_middle_is_said(bench: Bench) -> None:
    log = keep_only_first_log(bench)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    result = bench.upload()
    assert result.state is UploadState.UPLOADED
    assert "damaged after step" in result.message
    assert bench.steps == list(range(len(bench.steps)))


def test_dry_run_asks_nobody(bench: Bench) -> None:
    result = bench.upload(dry_run=True)
    assert (result.state, result.history) == (UploadState.WOULD_UPLOAD, STEPS)
    assert bench.server.requests == []
    assert bench.upload().state is UploadState.UPLOADED


def test_another_run_with_the_same_name_is_not_mixed_in(bench: Bench) -> None:
    bench.upload()
    shutil.rmtree(bench.logs[1].parent)
    bench.ledger = SqliteUploads(sqlite3.connect(":memory:"))
    result = bench.upload()
    assert result.state is UploadState.FAILED
    assert "not the same run" in result.message


def test_doubt_without_a_server_that_counts_sends_nothing(bench: Bench) -> None:
    bench.server.fail("file_stream", 401, after=2)
    assert bench.upload().state is UploadState.FAILED
    arrived = bench.steps
    assert arrived
    bench.server.faults.clear()
    bench.server.fail("RunResumeStatus", 400)
    result = bench.upload()
    assert result.state is UploadState.FAILED
    assert "does not say how much arrived" in result.message
    assert bench.steps == arrived


def test_a_refused_key_and_a_server_out_of_reach(bench: Bench) -> None:
    bench.server.fail("graphql", 401)
    with pytest.raises(WandbError, match="refuses the W&B key"):
        bench.upload()
    target = UploadTarget(Credentials("http://127.0.0.1:9", API_KEY))
    with pytest.raises(WandbError, match="cannot be reached"):
        bench.upload(target=target)


def test_entity_and_project_can_be_chosen(bench: Bench) -> None:
    target = UploadTarget(Credentials(bench.server.url, API_KEY), entity="lab", project="thesis")
    bench.upload(target=target)
    run = bench.server.runs["w1"]
    assert (run.entity, run.project, run.once) == ("lab", "thesis", True)


def test_what_another_process_has_sent_meanwhile_is_not_sent_again(bench: Bench) -> None:
    """Both found the same to send; the server of the second one does not count."""
    other: list[RunUpload] = []

    def before_ours(_: str) -> None:
        other.append(bench.upload())
        bench.server.fail("RunResumeStatus", 400)

    ours = bench.upload(tell=before_ours)
    assert other[0].state is UploadState.UPLOADED
    assert ours.state is UploadState.UP_TO_DATE
    assert bench.server.runs["w1"].once
    assert bench.steps == list(range(STEPS))


@pytest.mark.parametrize("answered", [0, 1])
def test_a_server_that_hangs_is_waited_for_aloud_and_given_up(
    answered: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FIRST_LOOK", 0.5)
    monkeypatch.setattr(client, "NEXT_LOOK", 0.5)
    monkeypatch.setattr(upload, "STALLED_SECONDS", 3.0)
    monkeypatch.setattr(upload, "_SETTLING_SECONDS", SETTLING)  # the client is killed
    said: list[str] = []
    bench.server.fail("PUT ", HANG)
    bench.server.fail("file_stream", HANG, after=answered)
    with pytest.raises(
        WandbError, match=rf"has taken nothing for \d+ s: \d+ of {STEPS} steps are there"
    ) as caught:
        bench.upload(tell=said.append)
    assert "sends what is missing" in (caught.value.hint or "")
    assert said[0] == "uploading r1"
    waits = rf"\d+ of {STEPS} steps are there; waiting for {bench.server.url}, for \d+ s since the last of"
    assert all(re.match(waits, line) for line in said[1:])
    assert len(said) > 1
    if not answered:
        assert bench.server.runs["w1"].arrived == []
    bench.server.faults.clear()
    assert bench.upload().state is UploadState.UPLOADED
    assert bench.steps == list(range(STEPS))
    assert bench.server.runs["w1"].once
