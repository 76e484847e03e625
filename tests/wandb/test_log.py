"""Reading logs that the real wandb client wrote, and writing parts of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.wandb.log import find_logs, inspect, write_part
from clusterkit.wandb.records import LogState, RecordKind, history_step, kind_of, scan
from tests.wandb.wandb_runs import write_offline_run

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_offline_run(tmp_path_factory.mktemp("log") / "run", "run1", range(60), exit_code=3)


def kinds_and_steps(path: Path) -> tuple[list[int | None], list[int | None]]:
    records: list[bytes] = []
    with path.open("rb") as stream:
        scan(stream, records.append)
    kinds = [kind_of(record) for record in records]
    return kinds, [
        history_step(r) for r, kind in zip(records, kinds, strict=True) if kind == RecordKind.HISTORY
    ]


@pytest.mark.slow
def test_what_a_log_holds(log_path: Path) -> None:
    log = inspect(log_path)
    assert (log.state, log.good_end) == (LogState.COMPLETE, log.size)
    assert (log.run_id, log.project, log.entity) == ("run1", "demo", None)
    assert (log.history, log.last_step, log.exit_code) == (60, 59, 3)
    assert abs(log.started - log_path.stat().st_mtime) < 60
    assert find_logs(log_path.parents[2]) == [log_path]


@pytest.mark.slow
def test_the_wire_reader_agrees_with_protobuf(log_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    records: list[bytes] = []
    with log_path.open("rb") as stream:
        scan(stream, records.append)
    for raw in records:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        name = record.WhichOneof("record_type")
        assert kind_of(raw) == record.DESCRIPTOR.fields_by_name[name].number
        if name == "history":
            steps = [int(i.value_json) for i in record.history.item if list(i.nested_key) == ["_step"]]
            assert [history_step(raw)] == steps


@pytest.mark.parametrize("cut", [9, 3000, 32768, 32770, 50_001])
def test_a_cut_log(log_path: Path, tmp_path: Path, cut: int) -> None:
    torn = tmp_path / "run-run1.wandb"
    torn.write_bytes(log_path.read_bytes()[:cut])
    log = inspect(torn)
    assert log.exit_code is None
    assert log.good_end <= cut
    assert (log.state is LogState.COMPLETE) == (log.good_end == cut)
    write_part(log, tmp_path / "part.wandb")
    part = inspect(tmp_path / "part.wandb")
    assert (part.state, part.size, part.history) == (LogState.COMPLETE, log.good_end, log.history)


@pytest.mark.parametrize("skip", [1, 25, 60])
def test_a_part_without_what_the_server_has(log_path: Path, tmp_path: Path, skip: int) -> None:
    write_part(inspect(log_path), tmp_path / "part.wandb", skip_history=skip)
    part = inspect(tmp_path / "part.wandb")
    assert (part.state, part.run_id, part.exit_code) == (LogState.COMPLETE, "run1", 3)
    kinds, steps = kinds_and_steps(tmp_path / "part.wandb")
    assert steps == list(range(skip, 60))
    assert {RecordKind.RUN, RecordKind.EXIT} <= set(kinds)


def test_negative_exit_codes(log_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    from clusterkit.wandb.records import exit_code

    record = wandb_internal_pb2.Record(exit=wandb_internal_pb2.RunExitRecord(exit_code=-9))
    assert exit_code(record.SerializeToString()) == -9


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        inspect(tmp_path)


def test_digest_tells_changes_of_equal_size(log_path: Path, tmp_path: Path) -> None:
    data = bytearray(log_path.read_bytes())
    data[-1] ^= 1
    changed = tmp_path / log_path.name
    changed.write_bytes(data)
    before, after = inspect(log_path), inspect(changed)
    assert before.size == after.size
    assert before.sha256 != after.sha256
    assert after.state is LogState.CORRUPT
    assert replace(after, path=before.path) != before
