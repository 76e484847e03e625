"""Jobs of this machine: real processes, started, asked, limited and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.backends.local.backend import LocalBackend
from clusterkit.backends.local.processes import family, job_id, living_pid, start_token
from clusterkit.probes import script
from clusterkit.runs.state import fold
from tests.backends.runs import Run, python
from tests.waiting import until

local = LocalBackend()
FOREVER = ("ready()", "while True: time.sleep(1)")
OF_A_JOB = """
    SLURM_JOB_ID SLURM_PROCID SLURM_NTASKS SLURM_JOB_END_TIME SLURMD_NODENAME SBATCH_PARTITION PMI_RANK
    PMIX_RANK OMPI_COMM_WORLD_RANK OMPI_MCA_orte_hnp_uri MPI_LOCALRANKID RANK LOCAL_RANK WORLD_SIZE GROUP_RANK
    NNODES ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID PET_NNODES CLUSTERKIT_SEED
    CLUSTERKIT_DEADLINE
"""
OF_THE_USER = "CUDA_VISIBLE_DEVICES SLURM_CONF HYDRA_FULL_ERROR PETSC_DIR RANKING"
STUBBORN = ("signal.signal(signal.SIGTERM, lambda *_: None)", *FOREVER)


def submit(run: Run, *options: str, grace: float | None = None) -> str:
    argv = local.submit_argv(str(run.path), run_dir=str(run.dir), job_name="x", options=options)
    if grace is not None:
        argv[4:4] = ["--grace", str(grace)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return local.accepted(done.stdout) or ""


def running(*job_ids: str) -> set[str]:
    done = subprocess.run(
        ["sh"], input=script([local.query(job_ids)]), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    jobs = local.query([]).read(done.stdout).jobs
    assert all(job.state is JobState.RUNNING for job in jobs.values())
    return set(jobs)


def cancel(*job_ids: str) -> None:
    subprocess.run(local.cancel_argv(job_ids), check=True)


def wait(run: Run, identifier: str) -> None:
    until(lambda: living_pid(identifier) is None)
    assert not running(identifier)
    assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
def test_a_job_runs_and_is_gone(tmp_path: Path) -> None:
    run = Run(tmp_path, python("time.sleep(0.3)"))
    identifier = submit(run)
    assert running(identifier) == {identifier}
    wait(run, identifier)
    assert fold(run.record, None).state is JobState.COMPLETED
    assert fold(run.record, None).job_id == identifier
    assert (run.dir / "slurm.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_job_is_no_part_of_the_job_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program would believe that it is one rank of several, and end with that job's limit."""
    outer, kept = OF_A_JOB.split(), OF_THE_USER.split()
    for name in (*outer, *kept):
        monkeypatch.setenv(name, "7")
    path = tmp_path / "environment"
    run = Run(tmp_path, python(f"open({str(path)!r}, 'w').write('\\n'.join(os.environ))"))
    identifier = submit(run)
    wait(run, identifier)
    names = set(path.read_text().split())
    assert names & set(outer) == set()
    assert set(kept) <= names
    assert fold(run.record, None).job_id == identifier


@pytest.mark.slow
def test_it_survives_the_end_of_its_submitter_and_terminal(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait_for_it = f"while not os.path.exists({str(go)!r}): time.sleep(0.05)"
    run = Run(tmp_path, python("import os", "ready()", wait_for_it))
    argv = local.submit_argv(str(run.path), run_dir=str(run.dir), job_name="x", options=[])
    shell = subprocess.Popen(["setsid", "sh", "-c", '"$@"; sleep 60', "sh", *argv], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    identifier = local.accepted(shell.stdout.readline().decode())
    assert identifier is not None
    until((run.dir / "ready").exists)
    os.killpg(shell.pid, signal.SIGHUP)  # what a closing terminal sends
    shell.wait()
    assert running(identifier) == {identifier}
    go.touch()
    wait(run, identifier)
    assert run.exit["why"] == "completed"


@pytest.mark.slow
def test_cancel_lets_the_program_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, python("signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))", *FOREVER))
    identifier = submit(run)
    until((run.dir / "ready").exists)
    cancel(identifier, "1-2", "999999-nothing")
    assert not running(identifier)
    assert run.exit == {"code": 85, "signal": "TERM", "why": "requeue"}


@pytest.mark.slow
def test_cancel_ends_all_of_a_stubborn_family(tmp_path: Path) -> None:
    children = (
        "import subprocess; [subprocess.Popen(['sleep', '1000'], start_new_session=new) for new in (0, 1)]"
    )
    run = Run(tmp_path, python(children, *STUBBORN))
    identifier = submit(run, grace=0.3)
    until((run.dir / "ready").exists)
    members = family(identifier)
    assert len(members) >= 5  # the keeper, job.sh, the program, its two children
    cancel(identifier)
    assert not running(identifier)
    assert [member for member in members if start_token(member)] == []
    assert run.exit == {"code": 137, "signal": "KILL", "why": "signalled"}
    assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    daemon = "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    run = Run(tmp_path, python("import subprocess", daemon, "print(child.pid)", "time.sleep(0.2)"))
    wait(run, submit(run))
    orphan = int(run.log().splitlines()[2])
    until(lambda: start_token(orphan) is None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "limit", "grace", "code"), [(FOREVER, 4, None, 143), (STUBBORN, 6, 0.3, 137)]
)
def test_a_program_ends_at_its_time_limit(
    tmp_path: Path, program: tuple[str, ...], limit: int, grace: float | None, code: int
) -> None:
    run = Run(tmp_path, python(*program))
    wait(run, submit(run, f"--time-limit={limit}", grace=grace))
    assert run.exit == {"code": code, "signal": "TERM", "why": "timeout"}
    assert fold(run.record, None).state is JobState.TIMEOUT


@pytest.mark.slow
def test_the_notice_before_the_limit(tmp_path: Path) -> None:
    run = Run(tmp_path, python("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85))", *FOREVER))
    wait(run, submit(run, "--time-limit=30", "--notice=USR1@24"))
    assert run.exit == {"code": 85, "signal": "USR1", "why": "requeue"}


GROWS = "os.makedirs(run_dir + '/checkpoints/step-' + os.environ['CLUSTERKIT_ATTEMPT'])"


def test_a_cancel_between_two_attempts_is_not_forgotten(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("""echo >>"$0.starts"; exit 85""")
    late = (
        "import os, signal, sys, time",
        "from clusterkit.backends.local.supervisor import Supervisor, incoming_signals",
        "with incoming_signals() as signals:",
        "    job = Supervisor(sys.argv[1], requeue=True)",
        "    while job._job.poll() is None: time.sleep(0.01)",
        "    os.kill(os.getpid(), signal.SIGTERM)",
        "    sys.exit(job.run(signals))",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(late), script], start_new_session=True, timeout=60)
    assert done.returncode == 85
    assert (tmp_path / "job.sh.starts").read_text() == "\n"


@pytest.mark.slow
def test_a_job_that_may_be_requeued_is_started_again_with_a_new_limit(tmp_path: Path) -> None:
    last = "os.environ['CLUSTERKIT_ATTEMPT'] == '2' and sys.exit(0)"
    run = Run(tmp_path, python(GROWS, last, *FOREVER), job={"until_done": "requeue"})
    identifier = submit(run, "--time-limit=1", "--requeue")
    wait(run, identifier)
    starts = [attempt.start or {} for attempt in run.record.attempts]
    assert [start["restart_count"] for start in starts] == [0, 1, 2]
    assert {start["job_id"] for start in starts} == {identifier}
    assert [(attempt.exit or {})["why"] for attempt in run.record.attempts] == ["timeout"] * 2 + ["completed"]


@pytest.mark.slow
def test_a_cancelled_job_is_not_started_again(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        python(GROWS, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))", *FOREVER),
        job={"until_done": "requeue"},
    )
    identifier = submit(run, "--requeue")
    until((run.dir / "ready").exists)
    cancel(identifier)
    assert not running(identifier)
    assert len(run.record.attempts) == 1


@pytest.mark.slow
def test_a_supervisor_killed_with_its_job_leaves_a_failed_run(tmp_path: Path) -> None:
    run = Run(tmp_path, python(*FOREVER))
    identifier = submit(run)
    until((run.dir / "ready").exists)
    pid = living_pid(identifier)
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    until(lambda: living_pid(identifier) is None)
    assert not running(identifier)
    assert fold(run.record, None).state is JobState.FAILED
    assert "without an exit record" in str(fold(run.record, None).why)


def test_ids_tell_processes_with_the_same_pid_apart() -> None:
    mine = job_id(os.getpid())
    assert mine is not None
    assert living_pid(mine) == os.getpid()
    assert running(mine) == {mine}
    other = f"{os.getpid()}-1"
    assert living_pid(other) is None
    assert running(other) == set()


def test_a_zombie_is_no_running_job() -> None:
    process = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z" or sys.platform != "linux")
    assert job_id(process.pid) is None
    process.wait()


def test_hostile_ids_are_not_run() -> None:
    assert running("1-2; echo 3-4", "$(id)", "") == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/job.sh", "/tmp"], "/no/job.sh does not exist"),
        ([__file__, "/no/dir"], "cannot write to /no/dir"),
    ],
)
def test_a_start_that_cannot_be(arguments: list[str], words: str) -> None:
    argv = [sys.executable, "-P", "-m", "clusterkit.backends.local.start", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1
    assert words in done.stderr
