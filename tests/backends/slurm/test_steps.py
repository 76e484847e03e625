"""The command that starts something inside a job, run with a made-up srun and squeue on PATH."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.errors import SchedulerError
from tests.programs import write_program
from tests.waiting import until


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    told = 'printf "%s|" "$@"; env | grep -c -E "^(SLURM|SBATCH)_"; exec sh -c "$CK_TEST" 2>&1'
    write_program(tmp_path, "srun", told)
    return write_program(
        tmp_path, "squeue", 'test "$*" = "-h -j 12_3 -o %A" && echo 15 || echo "asked $*" >&2'
    )


def run(tools: Path, argv: list[str], does: str = "exit 7") -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "CK_TEST": does}
    noise = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "9", "SBATCH_ACCOUNT": "x", "SLURM_CONF": "/etc/c"}
    process = subprocess.Popen(
        argv,
        env=env | noise,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    status = process.wait(120)  # its standard input is open until here
    with process:
        return subprocess.CompletedProcess(argv, status, process.stdout.read(), process.stderr.read())


@pytest.mark.parametrize(("terminal", "how"), [(True, "--pty"), (False, "--input=none")])
def test_argv_environment_and_status(tools: Path, terminal: bool, how: str) -> None:
    done = run(tools, SlurmBackend().inside_argv("12", ["echo", "a 'b'", ""], terminal=terminal))
    assert done.returncode == 7
    words, count = done.stdout.rsplit("|", 1)
    own = "--overlap|--nodes=1|--ntasks=1|--relative=0|--cpu-bind=none|--quiet"
    assert words == f"--jobid=12|{own}|{how}|echo|a 'b'|"
    assert count == "2\n"  # SLURM_CONF, and SLURM_EXIT_ERROR, which the program does not get


def test_a_task_of_an_array_has_a_job_id_of_its_own(tools: Path) -> None:
    assert run(tools, SlurmBackend().inside_argv("12_3", ["true"])).stdout.startswith("--jobid=15|")


def test_a_task_that_is_gone(tools: Path) -> None:
    done = run(tools, SlurmBackend().inside_argv("12_4", ["true"]))
    assert done.returncode == 1
    assert "not in the queue any more" in done.stderr


def test_a_cluster_of_a_federation(tools: Path) -> None:
    assert run(tools, SlurmBackend().inside_argv("12;east", ["true"])).stdout.startswith(
        "-M|east|--jobid=12|"
    )


def test_no_job_id() -> None:
    with pytest.raises(SchedulerError, match="not a Slurm job id"):
        SlurmBackend().inside_argv("12; rm", ["true"])


def test_a_step_ends_with_the_one_who_started_it(tools: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "CK_TEST": f"echo $$ >{mark}; exec sleep 4821"}
    process = subprocess.Popen(
        SlurmBackend().inside_argv("12", ["true"]), env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    until(lambda: mark.exists() and mark.read_text())
    step = int(mark.read_text())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(120) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(step, 0)
