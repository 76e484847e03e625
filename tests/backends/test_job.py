"""job.sh run for real by bash, without a container."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.backends.runs import Run, python
from tests.backends.test_alone import without_locks
from tests.doubles.full_disk import small_disk
from tests.programs import write_program
from tests.waiting import until

HOSTILE_NODE = 'n"1\\"&\\\\é\t$x'


@pytest.mark.slow
def test_success(tmp_path: Path) -> None:
    run = Run(tmp_path, python("print('hello', flush=True)", "print('trouble', file=sys.stderr)"))
    assert run.run(SLURM_JOB_ID="42", SLURM_RESTART_COUNT="1", SLURMD_NODENAME=HOSTILE_NODE) == 0
    assert run.exit == {"code": 0, "signal": None, "why": "completed"}
    start = run.record.attempts[0].start
    assert start is not None
    assert abs(start.pop("started") - time.time()) < 60  # type: ignore[attr-defined]
    assert start.pop("pid") > 1  # type: ignore[attr-defined]
    assert start == {
        "attempt": 0,
        "job_id": "42",
        "node": HOSTILE_NODE.replace("\t", ""),
        "restart_count": 1,
        "submission": 0,
        "checkpoint": None,
        "step": None,
    }
    assert "hello\ntrouble\n" in run.log()
    assert (run.dir / "attempts/0/stderr").read_text() == "trouble\n"
    assert run.log().endswith("attempt 0 ended: completed, exit code 0\n")
    assert run.output == ""


def test_everything_is_private_and_nothing_temporary_stays(tmp_path: Path) -> None:
    program = python(
        "open(os.environ['TMPDIR'] + '/left', 'w').close()",
        "print(oct(os.stat(os.environ['CLUSTERKIT_SCRATCH']).st_mode))",
    )
    run = Run(tmp_path, program)
    assert run.run() == 0
    assert "0o40700\n" in run.log()
    files = sorted(path.name for path in (run.dir / "attempts/0").iterdir())
    assert files == ["exit.json", "log", "start.json", "stderr"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (run.dir / "attempts").rglob("*"))
    assert list(run.scratch.iterdir()) == []


def test_runs_that_one_process_trains_know_where_they_meet_and_how_many_come(tmp_path: Path) -> None:
    others = [tmp_path / "runs" / f"it's {number}" for number in range(4)]
    records = {
        0: ("exit", '{"code": 0, "why": "completed"}'),
        1: ("cancel", '{"requested": 5}'),
        2: ("exit", "85"),
    }
    for number, (name, text) in records.items():
        (others[number] / "attempts/0").mkdir(parents=True)
        (others[number] / f"attempts/0/{name}.json").write_text(text)
    job = {
        "together": (*map(str, others), str(tmp_path / "runs/run-1")),
        "meeting": str(tmp_path / "we 'meet'"),
    }
    program = python("print([os.environ['CLUSTERKIT_TOGETHER' + end] for end in ('', '_SIZE')])")
    run = Run(tmp_path, program, job=job)
    assert run.run() == 0
    assert f"{[job['meeting'], '3']}\n" in run.log()
    assert (tmp_path / "we 'meet'").is_dir()


@pytest.mark.parametrize(
    ("program", "code", "signal_", "why"),
    [
        ("sys.exit(3)", 3, None, "failed"),
        ("sys.exit(85)", 85, None, "requeue"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "KILL", "signalled"),
    ],
)
def test_the_end_of_a_program_is_recorded(
    tmp_path: Path, program: str, code: int, signal_: str | None, why: str
) -> None:
    run = Run(tmp_path, python(program))
    assert run.run() == code
    assert run.exit == {"code": code, "signal": signal_, "why": why}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT"])
def test_signals_reach_the_program_and_its_answer_is_awaited(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    program = python(
        f"signal.signal(signal.{name}, lambda *_: (time.sleep(0.3), print('checkpointed'), sys.exit(85)))",
        "ready()",
        "while True: time.sleep(1)",
    )
    run = Run(tmp_path, program)
    assert run.signalled(number) == 85
    assert run.exit == {"code": 85, "signal": name.removeprefix("SIG"), "why": "requeue"}
    assert "checkpointed" in run.log()
    assert list(run.scratch.iterdir()) == []


def test_a_program_may_go_on_after_several_signals(tmp_path: Path) -> None:
    program = python(
        "got = []",
        "for n in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(n, lambda n, _: got.append(n))",
        "ready()",
        "while len(got) < 2: time.sleep(0.01)",
        "sys.exit(7)",
    )
    run = Run(tmp_path, program)
    process = run.start()
    until((run.dir / "ready").exists)
    process.send_signal(signal.SIGUSR1)
    until(lambda: "caught SIGUSR1" in run.log())
    process.send_signal(signal.SIGUSR2)
    process.communicate()
    assert process.returncode == 7


@pytest.mark.parametrize(("left", "why"), [(3600, "signalled"), (0, "timeout")])
def test_a_program_that_does_not_listen_dies_of_the_signal(tmp_path: Path, left: int, why: str) -> None:
    run = Run(tmp_path, python("ready()", "while True: time.sleep(1)"))
    deadline = str(int(time.time()) + left)
    assert run.signalled(signal.SIGTERM, CLUSTERKIT_DEADLINE=deadline) == 143
    assert run.exit == {"code": 143, "signal": "TERM", "why": why}
    assert list(run.scratch.iterdir()) == []


def test_sigint_is_not_ignored_as_shells_make_background_jobs_do(tmp_path: Path) -> None:
    program = python(
        "try:", "    ready()", "    while True: time.sleep(1)", "except KeyboardInterrupt: sys.exit(9)"
    )
    run = Run(tmp_path, program)
    assert run.signalled(signal.SIGINT) == 9


def test_the_log_says_how_far_off_the_time_limit_a_signal_came(tmp_path: Path) -> None:
    for number, (offset, words) in enumerate(
        [(-100, "s after the time limit"), (100, "s before the time limit")]
    ):
        run = Run(tmp_path / str(number), job={"prelude": ("kill -USR1 $PPID",)})
        assert run.run(CLUSTERKIT_DEADLINE=str(int(time.time()) + offset)) == 138
        (line,) = (line for line in run.log().splitlines() if "caught SIGUSR1, " in line)
        assert line.endswith(words)
        assert 90 <= int(line.split()[3]) <= 110


@pytest.mark.slow
def test_attempts_are_numbered_and_old_scratch_goes(tmp_path: Path) -> None:
    run = Run(tmp_path, python("print(os.environ['CLUSTERKIT_ATTEMPT'], os.environ['CLUSTERKIT_SCRATCH'])"))
    assert run.run() == 0
    left = run.scratch / "run-1-0" / "tmp"
    left.mkdir(parents=True)  # as after a power cut
    assert run.run() == 0
    assert f"1 {run.scratch}/run-1-1\n" in run.log(1)
    assert [attempt.number for attempt in run.record.attempts] == [0, 1]
    assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
def test_scratch_of_an_attempt_that_still_runs_stays(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    run = Run(tmp_path, python(f"while not os.path.exists({str(stop)!r}): time.sleep(0.05)"))
    path = f"{without_locks(tmp_path)}:{os.environ['PATH']}"
    first = run.start(PATH=path)
    until((run.scratch / "run-1-0" / "enter").exists)
    second = run.start(PATH=path)
    until((run.scratch / "run-1-1" / "enter").exists)
    assert (run.scratch / "run-1-0" / "enter").exists()
    second.kill()  # has no chance to clean up
    second.wait()
    stop.touch()
    assert first.wait(180) == 0
    assert [folder.name for folder in run.scratch.iterdir()] == ["run-1-1"]
    assert run.run(PATH=path) == 0
    assert list(run.scratch.iterdir()) == []


def test_what_a_job_started_before_is_dead_whoever_has_its_number_now(tmp_path: Path) -> None:
    run = Run(tmp_path, python("pass"))
    for number, job in enumerate(("7", "8")):
        attempt = run.dir / "attempts" / str(number)
        attempt.mkdir(parents=True)
        start = {"attempt": number, "job_id": job, "node": "n1", "pid": os.getpid()}
        (attempt / "start.json").write_text(json.dumps(start))
        (run.scratch / f"run-1-{number}" / "tmp").mkdir(parents=True)
    path = f"{without_locks(tmp_path)}:{os.environ['PATH']}"
    assert run.run(SLURM_JOB_ID="7", SLURMD_NODENAME="n1", PATH=path) == 0
    assert [folder.name for folder in run.scratch.iterdir()] == ["run-1-1"], "another job, which may live"
    assert run.run(SLURMD_NODENAME="n1") == 0
    assert list(run.scratch.iterdir()) == [], "the lock tells that nothing lives"


@pytest.mark.slow
def test_starts_at_the_same_time_run_one_after_the_other(tmp_path: Path) -> None:
    alone = "os.mkdir(run_dir + '/alone'); time.sleep(0.2); os.rmdir(run_dir + '/alone')"
    run = Run(tmp_path, python(alone))
    for process in [run.start() for _ in range(6)]:
        process.communicate()
    assert [attempt.number for attempt in run.record.attempts] == list(range(6))
    for attempt in run.record.attempts:
        assert attempt.exit is not None
        assert attempt.exit["code"] == 0, run.log(attempt.number)


def test_a_missing_interpreter(tmp_path: Path) -> None:
    run = Run(tmp_path, job={"python": "/no/such/python"})
    assert run.run() == 127
    assert run.exit == {"code": 127, "signal": None, "why": "failed"}
    assert "/no/such/python did not start the launcher" in run.log()


def test_a_missing_code_folder(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.code.rmdir()
    assert run.run() == 1
    assert run.exit["why"] == "failed"
    assert f"the code folder {run.code} does not exist" in run.log()


def test_a_missing_run_directory_is_said_on_stderr(tmp_path: Path) -> None:
    run = Run(tmp_path)
    script = run.path.rename(tmp_path / "job.sh")
    for path in run.dir.iterdir():
        path.unlink()
    run.dir.rmdir()
    done = subprocess.run(["bash", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"the run directory {run.dir} does not exist" in done.stderr


def test_scratch_that_cannot_be_made(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.scratch.write_text("in the way")
    assert run.run() == 1
    assert run.exit == {"code": 1, "signal": None, "why": "failed"}
    assert f"cannot create the scratch folder {run.scratch}/run-1-0" in run.log()


def test_foreign_scratch_is_neither_used_nor_removed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    foreign = run.scratch / "run-1-0"
    foreign.mkdir(parents=True)
    assert run.run() == 1
    assert foreign.is_dir()


def test_a_signal_before_the_program_starts_stops_it(tmp_path: Path) -> None:
    run = Run(tmp_path, python("print('too late')"), job={"prelude": ("kill -USR1 $PPID",)})
    assert run.run() == 128 + signal.SIGUSR1
    assert run.exit == {"code": 138, "signal": "USR1", "why": "signalled"}
    assert "too late" not in run.log()


def test_sockets_fit_into_tmpdir_below_a_long_path(tmp_path: Path) -> None:
    program = python(
        "import socket, tempfile",
        "path = os.path.join(tempfile.mkdtemp(), 'listener-12345678')",
        "socket.socket(socket.AF_UNIX).bind(path)",
        "print('real', os.path.realpath(path))",
        "print('tmpdir', os.environ['TMPDIR'])",
    )
    long = tmp_path / ("x" * 100)
    long.mkdir()
    run = Run(long, program)
    assert run.run() == 0, run.log()
    assert f"real {run.scratch}/run-1-0/tmp/" in run.log()
    shortcut = next(line for line in run.log().splitlines() if line.startswith("tmpdir")).split()[1]
    assert not Path(shortcut).parent.exists()


@pytest.mark.needs("a small disk")
def test_a_full_disk_still_gets_its_exit_record(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, kib=256):
        program = python(
            "file = open(os.environ['TMPDIR'] + '/fill', 'wb', 0)",
            "try:",
            "    while True: file.write(bytes(4096))",
            "except OSError: sys.exit(28)",
        )
        run = Run(disk, program)
        assert run.run() == 28
        assert run.exit == {"code": 28, "signal": None, "why": "failed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lead", "left", "config", "held"),
    [
        (2, 6, "PreemptMode=REQUEUE\nPreemptParameters=(null)", True),
        (2, 6, "PreemptMode=REQUEUE\nPreemptParameters=send_user_signal", False),  # it may be a preemption's
        (2, 6, "", False),  # scontrol says nothing
        (2, 200, "PreemptMode=OFF", False),  # too early for the limit's
        (10, 6, "PreemptMode=OFF", False),  # it is due
    ],
)
def test_an_early_signal_waits_until_it_is_due(
    tmp_path: Path, lead: int, left: int, config: str, held: bool
) -> None:
    program = python(
        "signal.signal(signal.SIGUSR1, lambda *_: (print('got', time.time()), sys.exit(85)))",
        "ready()",
        "while True: time.sleep(1)",
    )
    tools = write_program(tmp_path / "tools", "scontrol", f"cat <<'EOF'\n{config}\nEOF")
    run = Run(tmp_path, program, job={"options": (f"--signal=B:USR1@{lead}",)})
    deadline = int(time.time()) + left
    path = f"{tools}:{os.environ['PATH']}"
    assert run.signalled(signal.SIGUSR1, CLUSTERKIT_DEADLINE=str(deadline), PATH=path) == 85
    moment = float(run.log().partition("got ")[2].split()[0])
    assert ("came early" in run.log()) == held
    assert moment >= deadline - lead - 1 if held else moment < deadline - lead - 1 or lead > left
    assert run.exit == {"code": 85, "signal": "USR1", "why": "requeue"}


@pytest.mark.slow
def test_another_signal_does_not_wait_with_an_early_one(tmp_path: Path) -> None:
    tools = write_program(tmp_path / "tools", "scontrol", "echo PreemptMode=OFF")
    run = Run(
        tmp_path,
        python("ready()", "while True: time.sleep(1)"),
        job={"options": ("--signal=B:USR1@5",)},
    )
    deadline = str(int(time.time()) + 60)
    process = run.start(CLUSTERKIT_DEADLINE=deadline, PATH=f"{tools}:{os.environ['PATH']}")
    until((run.dir / "ready").exists)
    process.send_signal(signal.SIGUSR1)
    until(lambda: "came early" in run.log())
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert run.exit == {"code": 143, "signal": "TERM", "why": "signalled"}
    until(lambda: subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True).returncode == 1, 20)


ENVIRONMENT = """
import os, sys
import gymnasium
from gymnasium import spaces

class Quits(gymnasium.Env):
    observation_space = action_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, way):
        self.way, self.steps = way, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 150:
            os._exit(0) if self.way == "os._exit" else sys.exit(0) if self.way == "sys.exit" else None
        return self.observation_space.sample(), 0.0, False, self.steps % 50 == 0, {}

for way in ("os._exit", "sys.exit", "stays"):
    gymnasium.register(f"{way}-v0", "quits:Quits", kwargs={"way": way})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "detail"),
    [
        ("os._exit", "the trainer's process ended with exit code 0 before it was done, at step "),
        ("sys.exit", None),
        ("stays", None),
    ],
)
def test_only_a_trainer_that_says_so_is_done(tmp_path: Path, way: str, detail: str | None) -> None:
    """An environment that ends the process with 0 once made an unfinished run COMPLETED."""
    changes = [
        *("--set", f"environment=quits:{way}-v0", "--unlock", "environment"),
        *("--set", "hidden=8", "--unlock", "hidden", "--num-envs", "2", "--workers", "0", "--device", "cpu"),
        *("--set", "rollout_size=64", "--unlock", "rollout_size", "--total-steps", "512"),
        *("--set", "batch_size=32", "--unlock", "batch_size", "--wandb", "disabled", "--eval-every", "0"),
    ]
    argv = ("python", "-m", "trainer", "train", "--recipe", "ppo", *changes)
    run = Run(tmp_path, argv, python_path=[str(tmp_path / "code"), str(Path(__file__).parents[2])])
    (run.code / "quits.py").write_text(ENVIRONMENT)
    code = run.run()
    if way == "stays":
        assert (code, run.exit["why"]) == (0, "completed")
        return
    assert (code, run.exit["why"]) == (1, "failed")
    if detail is None:
        assert "an environment of quits:sys.exit-v0 failed: it called sys.exit(0)" in run.log()
        assert "quits.py" in run.log()
        assert "Traceback" not in run.log()
    else:
        assert str(run.exit["detail"]).startswith(detail)
        assert "of 512: an environment may have ended it" in str(run.exit["detail"])


@pytest.mark.parametrize(
    ("phases", "code"),
    [
        (((0, "done"), (0, "done")), 0),
        (((0, "done"), (0, "train")), 1),
        (((0, "done"), (7, "train")), 0),  # of a seed that was asked for in another attempt
        ((), 1),
    ],
)
def test_each_seed_of_a_process_says_that_it_is_done(
    tmp_path: Path, phases: tuple[tuple[int, str], ...], code: int
) -> None:
    """A stand-in for the trainer, whose name decides what exit code 0 means."""
    run = Run(tmp_path, ("python", "-m", "trainer", "train", "--seeds", "1,2"))
    (run.code / "trainer").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (run.code / "trainer" / name).write_text("")
    for seed, (attempt, phase) in enumerate(phases):
        (run.dir / f"seed-{seed}").mkdir()
        beat = {"attempt": attempt, "phase": phase}
        (run.dir / f"seed-{seed}" / "heartbeat.json").write_text(json.dumps(beat))
    assert run.run() == code
    assert run.exit["why"] == ("failed" if code else "completed")


def test_a_program_of_ones_own_that_stops_short_by_its_heartbeat_has_completed_and_it_is_said(
    tmp_path: Path,
) -> None:
    beat = {"schema": 1, "attempt": 0, "step": 30, "total_steps": 100, "phase": "train"}
    run = Run(
        tmp_path,
        python(
            f"text = {json.dumps(beat)!r}",
            "open(os.environ['CLUSTERKIT_RUN_DIR'] + '/heartbeat.json', 'w').write(text)",
        ),
    )
    assert run.run() == 0
    assert run.exit["why"] == "completed"
    assert "the program ended with exit code 0, at step 30 of 100, by its own heartbeat" in run.log()


def stderr_of(run: Run, attempt: int = 0) -> str:
    return (run.dir / "attempts" / str(attempt) / "stderr").read_text()


def test_nothing_of_much_is_lost_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path, python("sys.stderr.write('x' * 5_000_000 + 'end\\n')", "os._exit(3)"))
    assert run.run() == 3
    assert len(stderr_of(run)) == 5_000_004
    assert "xend\n[clusterkit] attempt 0 ended: failed, exit code 3\n" in run.log()


def test_a_signal_to_the_whole_group_leaves_the_way_of_standard_error_open(tmp_path: Path) -> None:
    program = python(
        "def stop(*_):",
        "    for n in range(50): print('saving', n, file=sys.stderr, flush=True); time.sleep(0.01)",
        "    sys.exit(85)",
        "signal.signal(signal.SIGTERM, stop)",
        "ready()",
        "while True: time.sleep(1)",
    )
    run = Run(tmp_path, program)
    process = run.start()
    until((run.dir / "ready").exists)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == 85
    assert run.exit == {"code": 85, "signal": "TERM", "why": "requeue"}
    assert stderr_of(run).endswith("saving 49\n")


def test_a_full_disk_does_not_break_the_programs_pipe(tmp_path: Path) -> None:
    program = python("for _ in range(9): os.write(2, b'x' * 100_000)", "print('went on')")
    stderr = tmp_path / "runs/run-1/attempts/0/stderr"
    run = Run(tmp_path, program, job={"prelude": (f"ln -s /dev/full '{stderr}'",)})
    assert run.run() == 0
    assert "went on" in run.log()  # its line break may come behind what is still on its way through the pipe


@pytest.mark.slow
def test_a_daemon_that_keeps_standard_error_open_does_not_hold_the_job(tmp_path: Path) -> None:
    run = Run(tmp_path, python("import subprocess", "print(subprocess.Popen(['sleep', '271']).pid)"))
    assert run.run() == 0
    (daemon,) = (int(line) for line in run.log().splitlines() if line.isdigit())
    os.kill(daemon, signal.SIGKILL)  # it outlived the job
    assert run.exit["why"] == "completed"


def test_a_place_without_pipes_has_the_log_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, python("print('trouble', file=sys.stderr)"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mkfifo").symlink_to("/bin/false")
    assert run.run(PATH=f"{tools}:{os.environ['PATH']}") == 0
    assert "trouble\n" in run.log()
    assert not (run.dir / "attempts/0/stderr").exists()
