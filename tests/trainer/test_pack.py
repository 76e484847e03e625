"""Runs that meet, one of which trains all: real processes, signals, sockets; the training is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import until
from trainer.preemption import StopSignals
from trainer.seeds import meeting
from trainer.seeds.leader import Leader
from trainer.seeds.line import Card, PackLine, output_stream
from trainer.seeds.meeting import AloneError, Follower, meet
from trainer.seeds.pack import keep_fresh, pack_from


class Run:
    """One run of a pack, in a process of its own."""

    def __init__(
        self,
        root: Path,
        seed: int,
        *,
        size: int,
        seconds: float,
        extra: tuple[str, ...] = (),
        stdout: int | None = None,
    ) -> None:
        self.dir = root / f"run-{seed}"
        self.dir.mkdir(exist_ok=True)
        (root / "meet").mkdir(exist_ok=True)
        arguments = ["--recipe", "ppo", "--device", "cpu", "--seed", str(seed), *extra]
        with (self.dir / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.trainer.packs_for_tests", str(seconds), *arguments],
                env={
                    **os.environ,
                    "CLUSTERKIT_RUN_DIR": str(self.dir),
                    "CLUSTERKIT_TOGETHER": str(root / "meet"),
                    "CLUSTERKIT_TOGETHER_SIZE": str(size),
                },
                stdout=log if stdout is None else stdout,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return (self.dir / "log").read_text()

    @property
    def steps(self) -> list[list[str]]:
        """Of each step, the process that made it, the seed, and what it went on from."""
        path = self.dir / "steps"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def ends(self) -> int:
        return self.process.wait(240)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., list[Run]]]:
    """Starts the runs of these seeds; the first one leads."""
    started: list[Run] = []

    def begin(*seeds: int, seconds: float = 300.0, size: int | None = None) -> list[Run]:
        runs = []
        for seed in seeds:
            runs.append(Run(tmp_path, seed, size=size or len(seeds), seconds=seconds))
            if not started and seed == seeds[0]:
                until(lambda: "waiting" in runs[0].log)
            started.append(runs[-1])
        return runs

    yield begin
    for run in started:
        run.process.kill()
        run.process.wait()


@pytest.mark.slow
def test_one_process_trains_all_and_each_run_has_its_own_log_and_code(start) -> None:
    runs = start(1, 2, 3, seconds=0.2)
    (runs[1].dir / "do").write_text("1")
    assert [run.ends() for run in runs] == [0, 1, 0]
    assert {step[0] for run in runs for step in run.steps} == {str(runs[0].process.pid)}
    for seed, run in enumerate(runs, 1):
        assert {step[1] for step in run.steps} == {str(seed)}
        assert run.log.count(" ends with ") == 1
        assert f"seed {seed} ends with" in run.log
    assert "it diverged" in runs[1].log
    assert "the process of run-1 trains 3 runs, this one among them" in runs[2].log


@pytest.mark.slow
def test_a_leader_whose_run_has_ended_shows_that_it_lives(start) -> None:
    first, second = start(1, 2)
    until(lambda: first.steps and second.steps)
    beat = first.dir / "heartbeat.json"
    beat.write_text('{"time": 1.5}')
    (first.dir / "do").write_text("0")
    until(lambda: json.loads(beat.read_text())["time"] > 1.5)
    assert "its process trains the other 1 to their ends" in first.log
    (second.dir / "do").write_text("0")
    assert [run.ends() for run in (first, second)] == [0, 0]


@pytest.mark.slow
def test_who_reads_what_a_run_says_sees_its_end_while_its_process_trains_others(
    start, tmp_path: Path
) -> None:
    (first,) = start(1, size=2)
    reader, writer = os.pipe()
    second = Run(tmp_path, 2, size=2, seconds=30.0, stdout=writer)
    os.close(writer)
    until(lambda: second.steps)
    (second.dir / "do").write_text("0")
    assert second.ends() == 0
    os.set_blocking(reader, False)  # to read on is an error while somebody could still write
    assert b"seed 2 ends with 0" in os.read(reader, 1 << 16)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert first.process.poll() is None


@pytest.mark.slow
def test_a_signal_to_one_run_stops_that_one_and_it_is_the_leaders_turn_last(start) -> None:
    runs = start(1, 2, 3)
    until(lambda: all(run.steps for run in runs))
    runs[1].process.send_signal(signal.SIGTERM)
    assert runs[1].ends() == 85
    assert (runs[1].dir / "checkpoint").exists()
    runs[2].process.kill()  # its end is noticed, and its work is kept
    until(lambda: (runs[2].dir / "checkpoint").exists())
    runs[0].process.send_signal(signal.SIGINT)
    assert runs[0].ends() == 130


@pytest.mark.slow
def test_when_the_leader_alone_is_stopped_another_one_leads_the_rest(start) -> None:
    runs = start(1, 2, 3)
    until(lambda: all(run.steps for run in runs))
    runs[0].process.send_signal(signal.SIGTERM)
    assert runs[0].ends() == 85
    first, *others = runs
    until(lambda: all(run.steps[-1][0] != str(first.process.pid) for run in others))
    assert others[0].steps[-1][0] == others[1].steps[-1][0]
    assert {run.steps[-1][2] for run in others} == {"newest"}
    assert all("run-1 leaves" in run.log for run in others)
    for run in others:
        (run.dir / "do").write_text("0")
    assert [run.ends() for run in others] == [0, 0]


@pytest.mark.slow
def test_a_leader_that_is_killed_fails_all_with_a_line_that_says_so(start) -> None:
    runs = start(1, 2)
    until(lambda: all(run.steps for run in runs))
    runs[0].process.kill()
    assert runs[1].ends() == 1
    assert "the process that trained this run, that of run-1, is gone\n  the log of run-1" in runs[1].log


@pytest.mark.slow
def test_what_takes_the_process_along_is_told_to_all(start) -> None:
    runs = start(1, 2)
    until(lambda: all(run.steps for run in runs))
    (runs[1].dir / "do").write_text("crash")
    assert runs[1].ends() == 1
    assert runs[0].ends() == 1
    assert "that of run-1, has failed: out of memory\n" in runs[1].log
    assert "RuntimeError" in runs[0].log


@pytest.mark.slow
def test_one_that_comes_late_trains_by_itself(start, tmp_path: Path) -> None:
    runs = start(1, 2)
    until(lambda: all(run.steps for run in runs))
    (late,) = start(3, size=3)
    assert late.ends() == 0
    assert (late.dir / "alone").exists()
    assert "run-1 has begun without it: this run trains in its own process" in late.log
    for run in runs:
        (run.dir / "do").write_text("0")
    assert [run.ends() for run in runs] == [0, 0]


@pytest.mark.slow
def test_one_with_other_settings_trains_by_itself(start, tmp_path: Path) -> None:
    leads = start(1, size=2)[0]
    other = Run(tmp_path, 2, size=2, seconds=1, extra=("--total-steps", "512"))
    assert other.ends() == 0
    assert "another total_steps: this run trains in its own process" in other.log
    assert leads.ends() == 0
    assert (leads.dir / "alone").exists()


@pytest.mark.slow
def test_nobody_has_begun_when_the_leader_leaves_before(start, tmp_path: Path) -> None:
    first, second = start(1, 2, size=3)
    first.process.send_signal(signal.SIGUSR1)
    assert first.ends() == 85
    until(lambda: "waiting" in second.log)
    (third,) = start(3, size=3)
    second.process.send_signal(signal.SIGUSR1)
    assert second.ends() == 85
    until(lambda: "waiting" in third.log)
    third.process.send_signal(signal.SIGTERM)
    assert third.ends() == 85
    assert not any(run.steps for run in (first, second, third))


def test_a_leader_waits_no_longer_than_its_patience(tmp_path: Path) -> None:
    stop = StopSignals()
    card = Card("a", (), {})
    leader = meet(tmp_path, card, stop)
    assert isinstance(leader, Leader)
    begun = time.monotonic()
    with leader:
        assert leader.gather(2, patience=0.2) == []
        assert time.monotonic() - begun >= 0.2


def test_who_meets_again_counts_those_who_were_told_so_before_and_have_left(tmp_path: Path) -> None:
    def follow(name: str) -> int:
        follower = meet(tmp_path, Card(name, (), {}), StopSignals())
        assert isinstance(follower, Follower)
        with follower:
            assert follower.begun()
            ending = follower.ending()
        assert ending is not None
        return ending.again

    stop = StopSignals()
    leader = meet(tmp_path, Card("first", (), {}), stop)
    assert isinstance(leader, Leader)
    with ThreadPoolExecutor(2) as others, leader:
        again = [others.submit(follow, name) for name in ("second", "third")]
        guests = leader.gather(3)
        leader.begin()
        stop.take(signal.SIGTERM)
        until(lambda: all(guest.stop for guest in guests))
        for guest in guests:
            leader.end(guest, 85, "")
            until(lambda guest=guest: guest.leaves)
        assert [each.result() for each in again] == [2, 2]


def test_a_long_path_and_a_dead_leaders_door_are_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    (folder / meeting._DOOR).touch()
    stop = StopSignals()
    leader = meet(folder, Card("a", (), {}), stop)
    assert isinstance(leader, Leader)
    card = Card("b", ("x" * 300_000,), {"é": "\udc80"})
    with leader, ThreadPoolExecutor() as other:
        came = other.submit(meet, folder, card, stop)  # so much is not sent before somebody reads it
        (guest,) = leader.gather(2)
        assert guest.card == card
        follower = came.result()
        assert isinstance(follower, Follower)
        follower.leave()
    assert not (folder / meeting._DOOR).exists()


def test_where_no_door_can_be_each_trains_by_itself_and_none_waits_for_another(tmp_path: Path) -> None:
    (tmp_path / meeting._DOOR).mkdir()
    for name in ("a", "b"):
        with pytest.raises(AloneError, match="cannot meet in"):
            meet(tmp_path, Card(name, (), {}), StopSignals())


def test_a_run_that_has_ended_beats_on_while_its_process_trains_others(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    path.write_text('{"time": 1.5, "phase": "done", "step": 7}')
    with keep_fresh(path, 0.01) as beat:
        time.sleep(0.05)
        assert '"time": 1.5' in path.read_text()
        beat()
        until(lambda: json.loads(path.read_text())["time"] > 1.5)
    left = path.read_text()
    assert json.loads(left) | {"time": 0} == {"time": 0, "phase": "done", "step": 7}
    time.sleep(0.05)
    assert path.read_text() == left
    with keep_fresh(tmp_path / "none", 0.01) as beat:
        beat()
        time.sleep(0.05)


def test_what_nobody_has_taken_is_closed_with_the_line() -> None:
    ends = socket.socketpair()
    lines = [PackLine(end) for end in ends]
    with tempfile.TemporaryFile() as file:
        lines[0].send({"name": "a"}, [file.fileno()])
        assert lines[1].receive() == [{"name": "a"}]
    (descriptor,) = lines[1].descriptors
    for line in lines:
        line.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_stream_to_one_who_is_gone_is_no_fault(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with output_stream(writer) as stream:
        assert stream.write("lost\n") == 5
        assert not stream.isatty()


def test_a_run_of_its_own_meets_nobody() -> None:
    assert pack_from({}) is None
    assert pack_from({"CLUSTERKIT_TOGETHER": "/x", "CLUSTERKIT_TOGETHER_SIZE": "1"}) is None
    assert pack_from({"CLUSTERKIT_TOGETHER": "/x", "CLUSTERKIT_TOGETHER_SIZE": "2"}).size == 2
