"""Pulling real run directories with the real rsync, on this machine and through a real sshd."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from clusterkit.errors import RunError, TransportError
from clusterkit.results.pull import PulledRun, pull_runs
from clusterkit.results.selection import Checkpoints
from clusterkit.transport.base import Completed, Transferred, Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.local import LocalTransport
from tests.doubles.folding_disk import folding_disk
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.results.node_runs import RUN, make_checkpoint, make_run, segment, write


class Watched:
    """A transport that counts what is asked of it."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.commands = 0
        self.moved: list[Transferred] = []

    @property
    def where(self) -> str:
        return self.inner.where

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.commands += 1
        return self.inner.run(argv, **options)

    def pull(self, source: str, target: Path, **options: Any) -> Transferred:
        self.moved.append(self.inner.pull(source, target, **options))
        return self.moved[-1]


@dataclass
class Bench:
    """A folder of runs on the far side, and a results folder on this one."""

    runs: Path
    results: Path
    transport: Watched

    @property
    def run_dir(self) -> Path:
        return self.runs / RUN

    @property
    def home(self) -> Path:
        return self.results / RUN

    def pull(self, *run_ids: str, checkpoints: Checkpoints = Checkpoints.LAST) -> list[PulledRun]:
        self.transport.moved.clear()
        return pull_runs(
            cast("Transport", self.transport),
            runs_root=str(self.runs),
            run_ids=run_ids or [RUN],
            results=self.results,
            checkpoints=checkpoints,
        )

    def pull_one(self, checkpoints: Checkpoints = Checkpoints.LAST) -> PulledRun:
        (run,) = self.pull(checkpoints=checkpoints)
        return run


@pytest.fixture(scope="module")
@needing("sshd")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path_factory.mktemp("sshd") / "node")) as server:
        yield server


@pytest.fixture(scope="module", params=["local", pytest.param("ssh", marks=pytest.mark.exhaustive)])
@needing("sshd", unless=lambda road: road == "local")
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param == "local":
        yield LocalTransport()
    else:
        sshd = request.getfixturevalue("sshd")
        with closing(connect(sshd.alias, ssh_config=sshd.ssh_config)) as ssh:
            yield ssh
        assert sshd.accepted_logins() == 1


@pytest.fixture
def bench(transport: Transport, tmp_path: Path) -> Bench:
    make_run(tmp_path / "runs")
    return Bench(tmp_path / "runs", tmp_path / "project" / "results", Watched(transport))


over_ssh_too = pytest.mark.parametrize("transport", ["local", "ssh"], indirect=True)
"""Where it matters how the files travel, and not only which do."""


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@over_ssh_too
def test_a_run_comes_home_whole(bench: Bench) -> None:
    run = bench.pull_one()
    assert names(bench.home) == {
        "run.json",
        "attempts/0/log",
        "attempts/0/exit.json",
        "metrics.jsonl",
        "heartbeat.json",
        "wandb/offline-run-20260102_030405-w1/run-w1.wandb",
        "wandb/offline-run-20260102_030405-w1/files/config.yaml",
        "checkpoints/step-000000002000/manifest.json",
        "checkpoints/step-000000002000/model.pt",
        "checkpoints/step-000000002000/replay.pt",
        "checkpoints/final_model.pt",
    }
    sizes = {name: (bench.run_dir / name).stat().st_size for name in names(bench.home)}
    assert {name: (bench.home / name).stat().st_size for name in sizes} == sizes
    assert (run.files, run.bytes, run.total_bytes) == (len(sizes), sum(sizes.values()), sum(sizes.values()))
    assert run.problems == ()


def test_nothing_here_is_open_to_others(bench: Bench) -> None:
    (bench.run_dir / "run.json").chmod(0o6777)
    bench.pull_one()
    assert stat.S_IMODE((bench.home / "run.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(bench.home.stat().st_mode) == 0o700


@over_ssh_too
def test_nothing_new_is_one_command_and_no_transfer(bench: Bench) -> None:
    bench.pull_one()
    bench.transport.commands = 0
    run = bench.pull_one()
    assert run.up_to_date
    assert (bench.transport.commands, bench.transport.moved) == (1, [])


@pytest.mark.parametrize(
    ("checkpoints", "expected"),
    [
        (Checkpoints.NONE, set()),
        (Checkpoints.LAST, {"final_model.pt", "step-000000002000"}),
        (Checkpoints.ALL, {"final_model.pt", "step-000000001000", "step-000000002000", "replay"}),
    ],
)
def test_checkpoints_can_be_chosen(bench: Bench, checkpoints: Checkpoints, expected: set[str]) -> None:
    bench.pull_one(checkpoints)
    assert {path.name for path in bench.home.glob("checkpoints/*")} == expected


def test_replay_rows_come_with_all_checkpoints_only(bench: Bench) -> None:
    bench.pull_one(Checkpoints.LAST)
    assert not (bench.home / "checkpoints/replay").exists()
    run = bench.pull_one(Checkpoints.ALL)
    assert names(bench.home / "checkpoints/replay") == {Path(segment(step)).name for step in (1000, 2000)}
    assert run.problems == ()
    write(bench.run_dir / "checkpoints" / segment(1000), b"torn")
    # both checkpoints list it, and it is said once
    assert bench.pull_one(Checkpoints.ALL).problems == (
        f"checkpoints/{segment(1000)} has 4 bytes instead of 5000",
    )


def test_the_last_checkpoint_is_the_one_saved_last(bench: Bench) -> None:
    def here() -> set[str]:
        return {path.name for path in bench.home.glob("checkpoints/step-*")}

    folder = make_checkpoint(bench.run_dir, 1500)
    os.utime(folder / "manifest.json", (4e9, 4e9))  # the run has gone on from step 1000
    bench.pull_one()
    assert here() == {"step-000000001500"}
    # `clean` has removed it there: an older one that stayed is not the last, and one saved later is
    shutil.rmtree(folder)
    write(bench.run_dir / "cleaned.json", "{}")
    bench.pull_one()
    assert here() == {"step-000000001500"}
    os.utime(make_checkpoint(bench.run_dir, 1600) / "manifest.json", (5e9, 5e9))
    bench.pull_one()
    assert here() == {"step-000000001500", "step-000000001600"}


@over_ssh_too
def test_a_grown_file_sends_its_tail_and_keeps_its_inode(bench: Bench) -> None:
    bench.pull_one()
    log = bench.home / "attempts/0/log"
    with log.open() as reader:
        reader.read()
        with (bench.run_dir / "attempts/0/log").open("a") as writer:
            writer.write("new\n")
        run = bench.pull_one()
        assert reader.read() == "new\n"
    assert (run.files, run.bytes) == (1, 4)
    assert sum(moved.bytes for moved in bench.transport.moved) == 4


@pytest.mark.slow
@over_ssh_too
@pytest.mark.parametrize("text", ["other\n" * 200, "short\n", "enil\n" * 100])
def test_a_replaced_log_is_replaced_here(bench: Bench, text: str) -> None:
    bench.pull_one()
    log = write(bench.run_dir / "attempts/0/log", text)
    os.utime(log, (log.stat().st_atime, log.stat().st_mtime + 5))
    bench.pull_one()
    assert (bench.home / "attempts/0/log").read_text() == text


@over_ssh_too
def test_a_rewrite_within_one_second_is_seen(bench: Bench) -> None:
    heartbeat = bench.run_dir / "heartbeat.json"
    os.utime(heartbeat, ns=(1_700_000_000_100_000_000,) * 2)
    bench.pull_one()
    heartbeat.write_text('{"step": 2}')
    os.utime(heartbeat, ns=(1_700_000_000_900_000_000,) * 2)
    bench.pull_one()
    assert (bench.home / "heartbeat.json").read_text() == '{"step": 2}'


def test_what_vanished_there_stays_here(bench: Bench) -> None:
    bench.pull_one()
    shutil.rmtree(bench.run_dir / "checkpoints" / "step-000000002000")
    make_checkpoint(bench.run_dir, 5000)
    write(bench.home / "notes.txt", "mine")
    run = bench.pull_one()
    assert run.files == 3
    assert (bench.home / "notes.txt").read_text() == "mine"
    assert (bench.home / "checkpoints/step-000000002000/model.pt").exists()
    assert (bench.home / "checkpoints/step-000000005000/model.pt").exists()


@pytest.mark.slow
@over_ssh_too
def test_many_runs_are_one_listing_and_one_transfer(bench: Bench) -> None:
    ids = [f"many-{n}" for n in range(20)]
    for run_id in ids:
        make_run(bench.runs, run_id)
    runs = bench.pull(*ids)
    assert [run.run_id for run in runs] == ids
    assert all(run.files == 11 for run in runs)
    assert (bench.transport.commands, len(bench.transport.moved)) == (1, 1)
    write(bench.runs / ids[3] / "heartbeat.json", '{"step": 12345}')
    runs = bench.pull(*ids)
    assert [run.run_id for run in runs if not run.up_to_date] == [ids[3]]
    assert bench.transport.moved[0].files == 1


@over_ssh_too
def test_more_runs_than_the_longest_command_can_name(bench: Bench) -> None:
    gone = [f"{n:04}-{'long-name-' * 3}" for n in range(3500)]  # 120 kB of names
    runs = bench.pull(*gone, RUN)
    assert [run.run_id for run in runs if run.found] == [RUN]
    assert len(runs) == 3501


@over_ssh_too
def test_missing_runs_and_roots(bench: Bench) -> None:
    found, missing = bench.pull(RUN, "demo-gone")
    assert found.found
    assert (missing.found, missing.files, missing.up_to_date) == (False, 0, False)
    assert not (bench.results / "demo-gone").exists()
    shutil.rmtree(bench.runs)
    with pytest.raises(RunError, match="no run was submitted"):
        bench.pull()


@pytest.mark.parametrize("run_id", ["../x", "", "-rf", "a/b", "a b", "a\nb", ".hidden"])
def test_a_run_id_that_is_none(bench: Bench, run_id: str) -> None:
    with pytest.raises(RunError, match="not a run id"):
        bench.pull(run_id)


@pytest.mark.parametrize("checkpoints", [Checkpoints.LAST, Checkpoints.BEST, Checkpoints.ALL])
def test_whatever_a_program_of_ones_own_calls_its_checkpoints_comes_home(
    bench: Bench, checkpoints: Checkpoints
) -> None:
    names = (
        "step-100/model.pt",
        "step-000000004000/model.pt",
        ".best/model.pt",
        "last.tmp/model.pt",
        "replay/.a.tmp",
    )
    for name in names:
        write(bench.run_dir / "checkpoints" / name, "own")
    assert bench.pull_one(checkpoints).problems == ()
    for name in names:
        assert (bench.home / "checkpoints" / name).read_text() == "own"


@over_ssh_too
def test_a_link_to_a_file_of_the_run_is_one_more_name_of_it_here(bench: Bench) -> None:
    out = bench.run_dir / "out"
    write(out / "epoch3.ckpt", "three")
    write(out / "epoch4.ckpt", "four")
    (out / "last.ckpt").symlink_to("epoch3.ckpt")
    (bench.run_dir / "newest").symlink_to("out/last.ckpt")
    assert bench.pull_one().problems == ()
    assert (bench.home / "out/last.ckpt").samefile(bench.home / "out/epoch3.ckpt")
    assert (bench.home / "newest").read_text() == "three"
    (out / "last.ckpt").unlink()
    (out / "last.ckpt").symlink_to("epoch4.ckpt")
    assert bench.pull_one().problems == ()
    assert (bench.home / "newest").read_text() == "four"
    assert not [path for path in bench.home.rglob("*") if path.is_symlink()]


def test_a_link_to_no_file_is_named(bench: Bench) -> None:
    write(bench.run_dir / "out/v2/model.pt", "x")
    (bench.run_dir / "out/latest").symlink_to("v2")
    (bench.run_dir / "ring").symlink_to("gnir")
    (bench.run_dir / "gnir").symlink_to("ring")
    assert sorted(bench.pull_one().problems) == [
        "not synced: gnir: a link to gnir, which is not there",
        "not synced: out/latest: a link to the folder out/v2",
        "not synced: ring: a link to ring, which is not there",
    ]


def test_a_link_takes_the_place_of_no_folder_here_and_leads_through_none(
    bench: Bench, tmp_path: Path
) -> None:
    write(bench.run_dir / "out/a", "x")
    (bench.run_dir / "out/b").symlink_to("a")
    (bench.run_dir / "c").symlink_to("out/a")
    (bench.home / "c").mkdir(parents=True)
    write(tmp_path / "outside/kept", "x")
    (bench.home / "out").symlink_to(tmp_path / "outside")
    problems = bench.pull_one().problems
    assert any("c is a folder here" in line for line in problems)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]


@pytest.mark.needs("a folding disk")
def test_of_names_that_the_disk_here_cannot_tell_apart_one_comes_and_the_others_are_named(
    bench: Bench, tmp_path: Path
) -> None:
    for name in ("out/Best.pt", "out/best.pt", "Out/BEST.pt"):
        write(bench.run_dir / name, name)
    (bench.run_dir / "out/bEst.pt").symlink_to("../metrics.jsonl")
    with folding_disk(tmp_path / "mac") as disk:
        bench.results = disk / "results"
        for _ in range(2):
            run = bench.pull_one()
            assert sorted(run.problems) == [
                "not synced: out/Best.pt: this disk cannot tell it from Out/BEST.pt",
                "not synced: out/bEst.pt: this disk cannot tell it from Out/BEST.pt",
                "not synced: out/best.pt: this disk cannot tell it from Out/BEST.pt",
            ]
            assert (bench.home / "out/best.pt").read_text() == "Out/BEST.pt"
        assert run.up_to_date


@pytest.mark.slow
@over_ssh_too
def test_a_checkpoint_rotated_away_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pull = bench.transport.pull

    def rotate_then_pull(*arguments: Any, **options: Any) -> Transferred:
        old = bench.run_dir / "checkpoints" / "step-000000002000"
        if old.exists():
            shutil.rmtree(old)
            make_checkpoint(bench.run_dir, 5000)
        return pull(*arguments, **options)

    monkeypatch.setattr(bench.transport, "pull", rotate_then_pull)
    run = bench.pull_one()
    assert (bench.home / "checkpoints/step-000000005000/model.pt").exists()
    assert run.problems == ()
    assert run.files == len(names(bench.home))


def test_a_fault_that_is_not_ours_is_passed_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Transferred:
        raise TransportError("copying from node failed")

    monkeypatch.setattr(bench.transport, "pull", refuse)
    with pytest.raises(TransportError, match="copying from"):
        bench.pull_one()


@pytest.mark.parametrize(
    ("successes", "expected"),
    [
        ({500: 0.5, 1000: 0.9, 2000: 0.7}, 1000),  # just there
        ({500: 0.9, 2000: 0.7}, 1000),  # the next one after it
        ({1500: 0.9, 2000: 0.7}, 2000),
        ({1000: 0.9, 2000: 0.9}, 2000),  # the later of equal ones
        ({9000: 0.9}, 2000),  # none after it: the last before
        ({}, 2000),  # never evaluated: the newest
    ],
)
def test_the_best_checkpoint(bench: Bench, successes: dict[int, float], expected: int) -> None:
    rows = [{"kind": "eval", "step": step, "success/mean": mean} for step, mean in successes.items()]
    rows += [{"kind": "eval", "step": 1000, "attempt": 1, "success/mean": None}, {"kind": "train", "step": 1}]
    write(bench.run_dir / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert bench.pull_one(Checkpoints.BEST).problems == ()
    here = {path.name for path in bench.home.glob("checkpoints/*")}
    assert here == {"final_model.pt", f"step-{expected:012d}"}
    assert bench.pull_one(Checkpoints.BEST).up_to_date


def test_the_best_of_a_lost_stretch_is_that_of_the_newer_attempt(bench: Bench) -> None:
    rows = [
        {"kind": "eval", "step": 1000, "attempt": 0, "success/mean": 0.99},
        {"kind": "eval", "step": 1000, "attempt": 1, "success/mean": 0.1},
        {"kind": "eval", "step": 2000, "attempt": 1, "success/mean": 0.5},
    ]
    write(bench.run_dir / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    bench.pull_one(Checkpoints.BEST)
    assert {path.name for path in bench.home.glob("checkpoints/step-*")} == {"step-000000002000"}


def test_a_checkpoint_that_is_damaged_in_silence(bench: Bench) -> None:
    model = bench.run_dir / "checkpoints/step-000000002000/model.pt"
    data = bytearray(model.read_bytes())
    data[7] ^= 1
    model.write_bytes(data)
    assert bench.pull_one().problems == (
        "checkpoints/step-000000002000/model.pt is damaged: its SHA-256 does not match its manifest",
    )


def test_what_came_is_checked(bench: Bench) -> None:
    write(bench.run_dir / "run.json", '{"run_id": "another"}')
    write(bench.run_dir / "metrics.jsonl", '{"kind": "train"}\nnot json\n{"half')
    write(bench.run_dir / "checkpoints/step-000000002000/model.pt", "torn")
    assert bench.pull_one().problems == (
        "run.json belongs to another run: 'another'",
        "metrics.jsonl line 2 is not a JSON object",
        "checkpoints/step-000000002000/model.pt has 4 bytes instead of 3000",
    )


def test_a_half_written_last_line_is_no_problem(bench: Bench) -> None:
    with (bench.run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tr')
    assert bench.pull_one().problems == ()


@pytest.mark.slow
@over_ssh_too
def test_machines_without_gnu_find(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = write(tmp_path / "bin" / "find", "#!/bin/sh\necho 'find: -printf: unknown' >&2\nexit 1\n")
    find.chmod(0o755)
    expected = bench.pull_one()
    bench.transport.inner = LocalTransport()
    monkeypatch.setenv("PATH", f"{find.parent}:{os.environ['PATH']}")
    assert bench.pull_one().up_to_date
    shutil.rmtree(bench.home)
    assert bench.pull_one() == expected


def test_of_three_at_once_one_brings_and_the_others_find_it(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    benches = [
        Bench(tmp_path / "runs", tmp_path / "project" / "results", Watched(LocalTransport()))
        for _ in range(3)
    ]
    together = threading.Barrier(3)

    def pull(bench: Bench) -> int:
        together.wait()
        return bench.pull_one().files

    with ThreadPoolExecutor(3) as pool:
        files = sorted(pool.map(pull, benches))
    assert files[:2] == [0, 0]
    assert files[2] > 0
    moved = [sum(one.bytes for one in bench.transport.moved) for bench in benches]
    assert sum(size > 0 for size in moved) == 1


def test_who_waits_for_another_is_told(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    results = tmp_path / "results"
    results.mkdir()
    other = os.open(results, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    bench = Bench(tmp_path / "runs", results, Watched(LocalTransport()))
    (run,) = pull_runs(
        cast("Transport", bench.transport),
        runs_root=str(bench.runs),
        run_ids=[RUN],
        results=results,
        waiting=lambda: os.close(other),  # as when the other's process ends
    )
    assert run.files > 0
