"""Event files of runs that are requeued and synced again and again, read by TensorBoard itself."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.errors import TrackerError
from clusterkit.trackers.base import RunStatus, TrackedRun
from clusterkit.trackers.tensorboard import TensorBoard
from tests.ports import free_port
from tests.trackers.run_files import RUN_ID, STARTS, append, expected, line, lines, log
from tests.waiting import until

pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra `trackers`)")


def write_event_file(metrics: Path, logs: Path) -> bool:
    run = TrackedRun(RUN_ID, RunStatus.RUNNING, None, None, {}, {})
    return log(TensorBoard(str(logs), "mine", lambda _: None), run, metrics)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "results" / "tensorboard"


def shown(logs: Path, tag: str = "train/loss") -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(logs / RUN_ID), size_guidance={"scalars": 0})
    reader.Reload()
    return [(one.step, one.value) for one in reader.Scalars(tag)]


def tags(logs: Path) -> list[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(logs / RUN_ID))
    reader.Reload()
    return list(reader.Tags()["scalars"])


def raw_steps(logs: Path) -> list[int]:
    """Of every number in every file, as no reader may hide one."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    steps = []
    for path in (logs / RUN_ID).iterdir():
        for record in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(record)
            steps += [event.step for value in event.summary.value if value.tag == "train/loss"]
    return steps


def test_a_run_requeued_twice_and_synced_after_each_start_has_each_step_once(
    tmp_path: Path, logs: Path
) -> None:
    for attempt, steps in enumerate(STARTS):
        metrics = append(tmp_path / RUN_ID, lines(steps, attempt))
        for changed in (True, False, False):
            assert write_event_file(metrics, logs) is changed
        assert shown(logs) == list(expected(STARTS[: attempt + 1]).items())
        assert raw_steps(logs) == list(expected(STARTS[: attempt + 1]))
    assert tags(logs) == ["train/loss", "train/speed", "eval/success/mean"]


def test_nothing_new_writes_nothing(tmp_path: Path, logs: Path) -> None:
    metrics = append(tmp_path / RUN_ID, lines(STARTS[0], 0))
    write_event_file(metrics, logs)
    (before,) = (logs / RUN_ID).iterdir()
    written = before.stat()
    assert not write_event_file(metrics, logs)
    assert before.stat() == written
    assert (logs / RUN_ID).stat().st_mode & 0o777 == 0o700


def test_a_run_without_numbers_gets_no_folder(tmp_path: Path, logs: Path) -> None:
    assert not write_event_file(append(tmp_path / RUN_ID, line(0, kind="run", seed=1)), logs)
    assert not logs.exists()


@pytest.mark.parametrize("point", ["replace", "truncate", "unlink"])
def test_an_interrupted_write_shows_each_step_once_then_and_after_the_next(
    tmp_path: Path, logs: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in (0, 1):
        write_event_file(append(tmp_path / RUN_ID, lines(STARTS[attempt], attempt)), logs)
    metrics = append(tmp_path / RUN_ID, lines(STARTS[2], 2))

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    target, name = {
        "replace": (Path, "replace"),
        "truncate": (os, "truncate"),
        "unlink": (Path, "unlink"),
    }[point]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, crash)
        with pytest.raises(KeyboardInterrupt):
            write_event_file(metrics, logs)
    assert shown(logs) == list(expected(STARTS[:2] if point == "replace" else STARTS).items())
    assert write_event_file(metrics, logs)
    assert shown(logs) == list(expected().items())
    assert raw_steps(logs) == list(expected())


def test_hostile_names_and_numbers_are_shown(tmp_path: Path, logs: Path) -> None:
    names = ["a b", "größe/ü", "../../x", "/", "", "[x]\n<script>", "x" * 100_000, "\ud800half"]
    text = (
        line(1, **dict.fromkeys(names, 1.0))
        + line(-5, nan=math.nan, inf=math.inf, big=1e300)
        + line(10**17, last=1)
    )
    write_event_file(append(tmp_path / RUN_ID, text), logs)
    assert {f"train/{name}" for name in names[:-1]} < set(tags(logs))
    assert math.isnan(shown(logs, "train/nan")[0][1])
    assert shown(logs, "train/inf") == [(-5, math.inf)]
    assert shown(logs, "train/last") == [(10**17, 1.0)]


def test_without_the_package_the_error_says_how_to_install_it(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(TrackerError, match="tensorboard is not installed") as raised:
        write_event_file(append(tmp_path / RUN_ID, lines(STARTS[0], 0)), logs)
    assert "[trackers]" in (raised.value.hint or "")


class _Board:
    """A running TensorBoard."""

    def __init__(self, logs: Path, load_fast: str) -> None:
        self._port = free_port()
        words = [
            "--logdir",
            logs,
            "--port",
            str(self._port),
            "--load_fast",
            load_fast,
            "--reload_interval",
            "1",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", *words], stderr=subprocess.DEVNULL
        )

    def shows(self) -> list[tuple[int, float]]:
        url = f"http://127.0.0.1:{self._port}/data/plugin/scalars/scalars?run={RUN_ID}&tag=train%2Floss"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return [(step, value) for _, step, value in json.load(answer)]
        except OSError:
            return []

    def until_it_shows(self, wanted: list[tuple[int, float]]) -> None:
        until(lambda: self.shows() == wanted)


@pytest.fixture(params=["true", "false"])
def board(logs: Path, request: pytest.FixtureRequest) -> Iterator[_Board]:
    logs.mkdir(parents=True)
    running = _Board(logs, request.param)
    yield running
    running.process.terminate()
    running.process.wait(30)


@pytest.mark.slow
def test_a_running_tensorboard_follows_and_shows_each_step_once(
    tmp_path: Path, logs: Path, board: _Board
) -> None:
    """With its data server, and with the reader in Python of machines that have none."""
    for attempt, steps in enumerate(STARTS):
        for part in (steps[:15], steps[15:]):
            write_event_file(append(tmp_path / RUN_ID, lines(part, attempt)), logs)
            so_far = [*STARTS[:attempt], range(steps[0], part[-1] + 1)]
            board.until_it_shows(list(expected(so_far).items()))
