"""What becomes of a job of this machine when processes of it are killed or stopped from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from clusterkit.backends.jobs import Job, JobState
from clusterkit.backends.local.find import find
from clusterkit.backends.local.processes import (
    family,
    is_living,
    job_id,
    job_of,
    living_pid,
    send,
    start_token,
)
from clusterkit.backends.local.stop import stop
from clusterkit.probes import script
from clusterkit.runs.state import RunState, fold
from tests.backends.local.test_local import FOREVER, STUBBORN, local, submit
from tests.backends.runs import Run, python
from tests.waiting import until

HIDES = "import subprocess; subprocess.Popen(['env', '-i', 'setsid', 'sleep', '1000'])"
DAEMON = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
SAVES = (
    "def save(*_): open(run_dir + '/saved', 'w').close(); sys.exit(85)",
    "signal.signal(signal.SIGTERM, save)",
)


def state(run: Run, identifier: str) -> RunState:
    """The run's state as `status` has it."""
    return fold(run.record, jobs(identifier).get(identifier))


def jobs(*identifiers: str) -> dict[str, Job]:
    done = subprocess.run(
        ["sh"], input=script([local.query(identifiers)]), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return dict(local.query([]).read(done.stdout).jobs)


def keeper(identifier: str) -> int:
    """The process that ends a job whose supervisor is killed."""
    (pid,) = [pid for pid in family(identifier) if b"local.stop" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


def kill_unnoticed(identifier: str) -> None:
    """Kill the supervisor and the keeper, so that nothing ends the job."""
    for pid in (keeper(identifier), living_pid(identifier)):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    until(lambda: living_pid(identifier) is None)


@pytest.fixture
def started() -> Iterator[list[str]]:
    """Ids of jobs that are killed in the end."""
    identifiers: list[str] = []
    yield identifiers
    for identifier in identifiers:
        leader = living_pid(identifier)
        send(family(identifier) | ({leader} if leader is not None else set()), signal.SIGKILL)


def begin(started: list[str], run: Run, *options: str) -> str:
    started.append(submit(run, *options))
    until((run.dir / "ready").exists)
    return started[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines", [(HIDES, *SAVES, *FOREVER), (DAEMON, *STUBBORN)], ids=["that saves", "that stays"]
)
def test_a_job_ends_with_its_supervisor(tmp_path: Path, started: list[str], lines: Sequence[str]) -> None:
    run = Run(tmp_path, python(*lines))
    identifier = begin(started, run)
    members = family(identifier)
    pid = living_pid(identifier)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: start_token(pid) is None)
    if lines[0] == DAEMON:
        now = state(run, identifier)
        assert (now.state, "supervisor was killed" in str(now.why)) == (JobState.RUNNING, True)
    until(lambda: not is_living(identifier))
    until(lambda: not any(map(start_token, members)))  # the keeper is the last
    assert (run.dir / "saved").exists() is (lines[0] == HIDES)
    assert run.exit["why"] == ("requeue" if lines[0] == HIDES else "signalled")
    assert state(run, identifier).state in (JobState.PREEMPTED, JobState.FAILED)
    assert list(run.scratch.iterdir()) == []
    assert f"the supervisor of job {identifier} was killed" in (run.dir / "slurm.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("which", ["none", "job.sh", "the program"])
def test_what_is_left_of_a_job_is_the_job(tmp_path: Path, started: list[str], which: str) -> None:
    """Nothing has ended it: it is found, shown and cancelled, daemons included."""
    run = Run(tmp_path, python(DAEMON, "open(run_dir + '/pid', 'w').write(str(os.getpid()))", *STUBBORN))
    identifier = begin(started, run)
    program = int((run.dir / "pid").read_text())
    job_sh = int(Path(f"/proc/{program}/stat").read_text().rpartition(") ")[2].split()[1])
    kill_unnoticed(identifier)
    members = family(identifier)
    if which == "job.sh":
        os.kill(job_sh, signal.SIGKILL)
        until(lambda: start_token(job_sh) is None)
    elif which == "the program":
        os.kill(program, signal.SIGKILL)
        until(lambda: start_token(job_sh) is None)  # it has written its record, and left the daemon
    assert set(jobs(identifier, "1-2", "999999-3")) == {identifier}
    assert jobs(identifier)[identifier].state is JobState.RUNNING
    if which == "none":
        assert find(str(run.path)) == [identifier]
        assert state(run, identifier).state is JobState.RUNNING
    stop([identifier, "1-2"], grace=0.5)
    assert [member for member in members if start_token(member)] == []
    assert jobs(identifier) == {}
    assert state(run, identifier).state is JobState.FAILED
    if which == "none":
        assert run.exit == {"code": 137, "signal": "KILL", "why": "signalled"}
        assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("which", ["supervisor", "job.sh", "program"])
def test_a_stopped_job_is_running_and_saves_when_it_is_cancelled(
    tmp_path: Path, started: list[str], which: str
) -> None:
    tells = "open(run_dir + '/pids', 'w').write(f'{os.getppid()} {os.getpid()}')"
    run = Run(tmp_path, python(tells, *SAVES, *FOREVER))
    identifier = begin(started, run)
    job_sh, program = map(int, (run.dir / "pids").read_text().split())
    pid = {"supervisor": living_pid(identifier), "job.sh": job_sh, "program": program}[which]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert state(run, identifier).state is JobState.RUNNING
    subprocess.run(local.cancel_argv([identifier]), check=True)
    assert not is_living(identifier)
    assert run.exit == {"code": 85, "signal": "TERM", "why": "requeue"}


@pytest.mark.slow
def test_daemons_that_have_ended_leave_nothing(tmp_path: Path, started: list[str]) -> None:
    daemon = "subprocess.run(['sh', '-c', 'sleep 0 & echo $!'], stdout=pids)"
    lines = ("import subprocess", "pids = open(run_dir + '/pids', 'w')", f"for _ in range(20): {daemon}")
    run = Run(tmp_path, python(*lines, *FOREVER))
    identifier = begin(started, run)
    pids = [int(pid) for pid in (run.dir / "pids").read_text().split()]
    assert len(pids) == 20
    until(lambda: not any(start_token(pid, zombie=True) for pid in pids))
    stop([identifier])
    assert run.exit["why"] == "signalled"


@pytest.mark.slow
def test_a_killed_job_script_ends_the_program(tmp_path: Path, started: list[str]) -> None:
    run = Run(tmp_path, python(DAEMON, "open(run_dir + '/parent', 'w').write(str(os.getppid()))", *STUBBORN))
    identifier = begin(started, run)
    members = family(identifier)
    os.kill(int((run.dir / "parent").read_text()), signal.SIGKILL)
    until(lambda: not is_living(identifier))
    assert [member for member in members if start_token(member)] == []
    assert state(run, identifier).state is JobState.FAILED


@pytest.mark.slow
def test_a_slot_is_free_when_nothing_of_its_job_lives(tmp_path: Path, started: list[str]) -> None:
    """Also when its supervisor was killed; and a task that was killed while it waited holds up no other."""
    runs = [
        Run(tmp_path / str(number), python("ready()", "while True: time.sleep(1)")) for number in range(3)
    ]
    group = tmp_path / "group"
    group.mkdir()
    (group / "members").write_text("".join(f"{run.dir}\n" for run in runs))
    argv = local.submit_argv("/", run_dir=str(group), job_name="x", options=["--array=0-2%1"])
    answer = subprocess.run(
        [*argv[:-2], str(runs[0].path), str(group)], capture_output=True, text=True, check=True
    ).stdout
    first, second, third = (str(local.accepted(answer, task)) for task in range(3))
    started += [first, second, third]
    until((runs[0].dir / "ready").exists)
    waiting = living_pid(second)
    assert waiting is not None
    assert jobs(second)[second].explained == "waits for an earlier run (1 at a time)"
    os.kill(waiting, signal.SIGKILL)
    until(lambda: start_token(waiting) is None)
    assert fold(runs[1].record, None).state is JobState.FAILED
    kill_unnoticed(first)
    with pytest.raises(AssertionError):
        until((runs[2].dir / "ready").exists, seconds=2)
    assert jobs(third)[third].state is JobState.PENDING
    stop([first])
    until((runs[2].dir / "ready").exists)


@pytest.mark.parametrize(("task", "waits"), [(0, False), (1, False), (2, True)])
def test_the_first_tasks_wait_for_no_earlier_run(task: int, waits: bool) -> None:
    words = ["clusterkit.backends.local.wait", "--group", "/g", "--slot", f"2:{task}:3", "--", "x"]
    with subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE) as begun:
        identifier = job_id(begun.pid)
        assert identifier
        job = jobs(identifier)[identifier]
    assert (job.state, job.explained) == (
        (JobState.PENDING, "waits for an earlier run (2 at a time)") if waits else (JobState.RUNNING, None)
    )


@pytest.mark.slow
def test_a_job_after_another_waits_for_all_of_it(tmp_path: Path, started: list[str]) -> None:
    before, after = (Run(tmp_path / name, python("ready()", "time.sleep(1000)")) for name in "ab")
    first = begin(started, before)
    started.append(submit(after, f"--after=any:{first}:{before.dir}"))
    kill_unnoticed(first)
    with pytest.raises(AssertionError):
        until((after.dir / "ready").exists, seconds=2)
    stop([first])
    until((after.dir / "ready").exists)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["outer", "inner"])
def test_a_job_that_a_job_has_started_is_its_own(tmp_path: Path, started: list[str], ends: str) -> None:
    inner = Run(tmp_path / "inner", python(*FOREVER))
    argv = local.submit_argv(str(inner.path), run_dir=str(inner.dir), job_name="x", options=[])
    starts = f"import subprocess; subprocess.run({argv!r}, stdout=open(run_dir + '/inner', 'w'), check=True)"
    outer = Run(tmp_path / "outer", python(starts, *FOREVER))
    first = begin(started, outer)
    second = str(local.accepted((outer.dir / "inner").read_text()))
    started.append(second)
    until((inner.dir / "ready").exists)
    assert family(first) & family(second) == set()
    stopped, runs_on = (first, second) if ends == "outer" else (second, first)
    stop([stopped])
    assert set(jobs(first, second)) == {runs_on}
    assert not is_living(stopped)
    assert is_living(runs_on)
    assert fold(inner.record, None).job_id == second


@pytest.mark.slow
def test_a_machine_without_ps_has_jobs(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for tool in Path(folder).glob("*"):
            if tool.name != "ps" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    run = Run(tmp_path, python(*FOREVER))
    identifier = begin(started, run)
    assert find(str(run.path)) == [identifier]
    assert state(run, identifier).state is JobState.RUNNING
    kill_unnoticed(identifier)
    assert find(str(run.path)) == [identifier]
    assert state(run, identifier).state is JobState.RUNNING
    stop([identifier])
    assert find(str(run.path)) == []
    assert state(run, identifier).state is JobState.FAILED


def test_a_process_of_another_job_with_the_same_number_is_not_touched() -> None:
    """The number of a leader that is gone may be that of another session; only the whole id counts."""
    other = subprocess.Popen(
        ["sh", "-c", "sleep 1000 & wait"], start_new_session=True, env={"PATH": os.environ["PATH"]}
    )
    try:
        stale = f"{other.pid}-1"
        assert not is_living(stale)
        assert jobs(stale) == {}
        stop([stale], grace=0.1, patience=0.1)
        assert other.poll() is None
        other.kill()
        other.wait()
        assert not is_living(stale), "its session lives on without a leader"
        assert jobs(stale) == {}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(other.pid, signal.SIGKILL)


def test_a_process_tells_its_job_by_its_environment() -> None:
    assert job_of(os.getpid()) == os.environ.get("CLUSTERKIT_JOB_ID")
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "CLUSTERKIT_JOB_ID": "7-8"}) as process:
        try:
            until(lambda: job_of(process.pid) == "7-8")
            assert family("7-8") == {process.pid}
            assert family("7-80") == family("no job") == set()
            assert set(jobs("7-8", "7-80", "70-8")) == {"7-8"}
        finally:
            process.kill()
    assert job_of(process.pid) is None
    assert job_id(process.pid) is None


@pytest.mark.slow
def test_a_job_that_ended_before_its_start_was_told_has_its_own_id(tmp_path: Path) -> None:
    run = Run(tmp_path, python("pass"))
    (run.dir / "slurm.log").touch()
    for _ in range(3):
        identifier = submit(run)
        until(lambda identifier=identifier: not is_living(identifier))
        assert "ended" not in identifier
        assert fold(run.record, None).job_id == identifier
