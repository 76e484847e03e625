"""One attempt of a run at a time, whoever was killed: job.sh and all that it starts hold a lock."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.backends.runs import Run, python
from tests.programs import write_program
from tests.waiting import until

CODE = "the code"
BEATS = "open(run_dir + '/heartbeat.json', 'w').close()"


def make(root: Path, *lines: str, seconds: int = 1, **job: object) -> Run:
    """A run whose program tells its number; a second attempt of it waits a few seconds."""
    run = Run(root, python("open(run_dir + '/pid', 'w').write(str(os.getpid()))", *lines), job=job)
    (run.code / "code").write_text(CODE)
    assert run.script.count("-lt 60 ]; do") == 1
    run.path.write_text(run.script.replace("-lt 60 ]; do", f"-lt {seconds} ]; do"))
    return run


@contextmanager
def left_behind(run: Run, **env: str) -> Iterator[int]:
    """A program whose job.sh was killed."""
    job = run.start(**env)
    until((run.dir / "ready").exists)
    job.kill()
    job.wait()
    pid = int((run.dir / "pid").read_text())
    try:
        os.kill(pid, 0)
        yield pid
    finally:
        for end in (os.kill, os.killpg):
            with suppress(ProcessLookupError):
                end(job.pid if end is os.killpg else pid, signal.SIGKILL)


LIVES_ON = ("if os.environ['CLUSTERKIT_ATTEMPT'] == '0':", "    ready()", "    while True: time.sleep(0.1)")


@pytest.mark.slow
def test_what_a_killed_job_has_left_keeps_the_next_attempt_from_its_directory(tmp_path: Path) -> None:
    run = make(tmp_path, *LIVES_ON)
    with left_behind(run) as pid:
        assert run.run() == 1
        detail = (
            f"attempt 0 still runs on {os.uname().nodename}: end its processes there, then resume the run"
        )
        assert run.exit["why"] == "failed"
        assert run.exit["detail"] == detail
        assert int((run.dir / "pid").read_text()) == pid
        assert (run.work / "code").read_text() == CODE
        assert run.run() == 1
        assert "attempt 0 still runs" in run.exit["detail"], "not the refused one"
    assert run.run() == 0, run.log(3)


@pytest.mark.slow
def test_a_child_with_closed_streams_and_an_empty_environment_keeps_the_next_attempt_out(
    tmp_path: Path,
) -> None:
    child = "os.execve('/bin/sh', ['sh', '-c', 'exec sleep 60 >/dev/null 2>&1'], {})"
    run = make(
        tmp_path,
        "if os.environ['CLUSTERKIT_ATTEMPT'] == '0':",
        "    os.setsid()",
        "    ready()",
        f"    {child}",
    )
    with left_behind(run):
        assert run.run() == 1
    assert run.run() == 0


@pytest.mark.slow
def test_a_second_attempt_starts_when_the_first_is_over(tmp_path: Path) -> None:
    go = tmp_path / "go"
    held = f"while not os.path.exists({str(go)!r}): time.sleep(0.05)"
    run = make(
        tmp_path, "os.mkdir(run_dir + '/alone')", "ready()", held, "os.rmdir(run_dir + '/alone')", seconds=60
    )
    first = run.start()
    until((run.dir / "ready").exists)
    second = run.start()
    until(lambda: (run.dir / "attempts/1/log").exists() and "it waits for another attempt" in run.log(1))
    assert not (run.scratch / "run-1-1").exists()
    go.touch()
    assert (first.wait(), second.wait()) == (0, 0), run.log(1)
    ended = [attempt.exit["ended"] for attempt in run.record.attempts if attempt.exit]
    assert ended == sorted(ended)
    assert not (run.work / "code").exists(), "the second one has removed its copy of the code"


@pytest.mark.slow
def test_a_signal_ends_the_wait_and_leaves_the_code_to_the_other(tmp_path: Path) -> None:
    run = make(tmp_path, *LIVES_ON, seconds=60)
    with left_behind(run):
        second = run.start()
        until(lambda: (run.dir / "attempts/1/log").exists() and "it waits for another attempt" in run.log(1))
        (run.dir / "attempts/1/cancel.json").write_text("{}")
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 143
        assert (run.work / "code").read_text() == CODE


@pytest.mark.slow
def test_a_lost_node_that_seems_to_hold_the_lock_does_not_end_the_run(tmp_path: Path) -> None:
    run = make(tmp_path, *LIVES_ON, seconds=2)
    with left_behind(run, SLURMD_NODENAME="n1"):
        assert run.run(SLURMD_NODENAME="n2") == 0
        assert "attempt 0 on n1 gives no sign of life: this one goes on" in run.log(1)


@pytest.mark.slow
def test_a_program_that_writes_on_a_node_that_was_given_up_keeps_the_directory(tmp_path: Path) -> None:
    run = make(tmp_path, *LIVES_ON[:2], f"    while True: time.sleep(0.2); {BEATS}", seconds=2)
    with left_behind(run, SLURMD_NODENAME="n1"):
        assert run.run(SLURMD_NODENAME="n2") == 1
        assert "attempt 0 still runs on n1" in run.exit["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("status", [127, 69], ids=["not installed", "no locks on this file system"])
def test_without_locks_a_run_starts_at_once(tmp_path: Path, status: int) -> None:
    run = make(tmp_path, *LIVES_ON)
    with left_behind(run):
        assert run.run(PATH=f"{without_locks(tmp_path, status)}:{os.environ['PATH']}") == 0, run.log(1)
        assert "waits" not in run.log(1)


def without_locks(root: Path, status: int = 69) -> Path:
    """A folder with a `flock` that cannot lock."""
    return write_program(root / "no-locks", "flock", f"exit {status}")


@pytest.mark.parametrize(("way", "kept"), [(None, False), ("requeue", True)])
def test_a_run_that_reached_its_time_limit_keeps_its_code_if_it_goes_on(
    tmp_path: Path, way: str | None, kept: bool
) -> None:
    run = make(tmp_path, "ready()", "while True: time.sleep(0.1)", until_done=way)
    deadline = str(int(time.time()) - 1)
    code = run.signalled(signal.SIGTERM, CLUSTERKIT_DEADLINE=deadline, CLUSTERKIT_JOB_ID="1-1")
    assert (code, run.exit["why"]) == (85 if kept else 143, "timeout")
    assert (run.work / "code").exists() is kept
