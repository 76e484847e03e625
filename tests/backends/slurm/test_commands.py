"""The commands, run by a real sh; Slurm's tools are small executables on PATH that tell what they got."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState, Parent
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.errors import SchedulerError
from clusterkit.probes import script
from tests.programs import write_program

slurm = SlurmBackend()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def install(tools: Path, name: str, *lines: str) -> None:
    write_program(tools, name, "\n".join(lines))


def run(argv: list[str], tools: Path, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", **env}
    return subprocess.run(argv, input=text, capture_output=True, text=True, env=environment)


def test_submit_passes_every_option_unchanged(tools: Path) -> None:
    install(tools, "sbatch", "printf '<%s>' \"$@\"")
    argv = slurm.submit_argv(
        "/r/a b/job.sh", run_dir="/r/a b", job_name="it's", options=["--comment=$x `y`", "--time=5"]
    )
    done = run(argv, tools)
    assert done.stdout == "<--parsable><--job-name=it's><--comment=$x `y`><--time=5></r/a b/job.sh>"


def test_a_job_has_one_name() -> None:
    argv = slurm.submit_argv("/job.sh", run_dir="/", job_name="run", options=["--job-name=group"])
    assert [word for word in argv if word.startswith("--job-name")] == ["--job-name=group"]


def test_a_job_waits_for_those_of_each_kind_once_and_goes_when_they_fail() -> None:
    parents = [Parent("4;north", "/a"), Parent("4;north", "/b"), Parent("5_1", "/c", "any")]
    assert slurm.dependency(parents) == ("--dependency=afterok:4,afterany:5_1", "--kill-on-invalid-dep=yes")
    assert slurm.dependency([]) == ()


def test_submit_drops_what_would_override_the_request(tools: Path) -> None:
    install(tools, "sbatch", "env | grep -E '^(SBATCH|SLURM|OTHER)_' | sort")
    argv = slurm.submit_argv("/job.sh", run_dir="/", job_name="x", options=[])
    done = run(
        argv,
        tools,
        SBATCH_PARTITION="debug",
        SBATCH_EXPORT="a\nSBATCH_FAKE=1",
        SLURM_JOB_ID="1",
        SLURM_CONF="/etc/slurm.conf",
        SLURM_CLUSTERS="north",
        OTHER_SBATCH_X="1",
    )
    assert done.stdout.splitlines() == [
        "OTHER_SBATCH_X=1",
        "SLURM_CLUSTERS=north",
        "SLURM_CONF=/etc/slurm.conf",
    ]


def test_submit_keeps_the_exit_code(tools: Path) -> None:
    install(tools, "sbatch", "echo refused >&2; exit 7")
    done = run(slurm.submit_argv("/job.sh", run_dir="/", job_name="x", options=[]), tools)
    assert (done.returncode, done.stderr) == (7, "refused\n")


def test_cancel(tools: Path) -> None:
    install(tools, "scancel", 'echo "$@"')
    assert run(slurm.cancel_argv(["1", "2_3", "4;north"]), tools).stdout == "-Q 1 2_3\n-Q -M north 4\n"
    install(tools, "scancel", "exit 3")
    assert run(slurm.cancel_argv(["1", "4;north"]), tools).returncode == 3


@pytest.mark.parametrize("identifier", ["", "1; rm -rf /", "$(id)", "1;a b", "-u", "123_4;x;y"])
def test_text_that_is_no_job_id_goes_nowhere(identifier: str) -> None:
    with pytest.raises(SchedulerError):
        slurm.cancel_argv([identifier])
    with pytest.raises(SchedulerError):
        script([slurm.query([identifier])])


def test_query_reads_what_the_tools_say(tools: Path) -> None:
    install(
        tools,
        "squeue",
        "printf '7\\0377\\037RUNNING\\037None\\037g\\037n1\\0371:00\\0372:00\\037N/A\\037N/A\\037my run'",
    )
    install(tools, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    done = run(["sh"], tools, script([slurm.query(["7", "8"])]))
    assert (done.returncode, done.stderr) == (0, "")
    jobs = slurm.query([]).read("Welcome\n" + done.stdout).jobs
    assert jobs["7"].state is JobState.RUNNING
    assert (jobs["7"].limit_seconds, jobs["7"].name) == (120, "my run")
    assert "8" not in jobs


def test_query_survives_tools_that_eat_standard_input_or_fail(tools: Path) -> None:
    install(tools, "squeue", "cat >/dev/null; echo 'squeue: error: no controller' >&2; exit 1")
    install(tools, "sacct", "cat >/dev/null; kill -9 $$")
    done = run(["sh"], tools, script([slurm.query(["7"])]) + "echo and on\n")
    assert done.stdout.endswith("and on\n")
    job = slurm.query([]).read(done.stdout.removesuffix("and on\n")).jobs["7"]
    assert job.state is JobState.UNKNOWN
    assert job.reason == "squeue failed: squeue: error: no controller"


def test_query_without_slurm_on_the_path(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh"], input=script([slurm.query(["7"])]), capture_output=True, text=True, env={"PATH": ""}
    )
    assert done.returncode == 0
    assert "squeue" in str(slurm.query([]).read(done.stdout).jobs["7"].reason)


def test_query_asks_each_cluster_for_its_own(tools: Path) -> None:
    for name in ("squeue", "sacct"):
        install(tools, name, f'echo "{name} $@" | tr "\\037" . >>{tools}/asked')
    run(["sh"], tools, script([slurm.query(["1", "2;north", "3_4"])]))
    asked = (tools / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["squeue", "sacct"] * 2
    assert "-j 1,3_4 " in asked[1]
    assert "-M north" in asked[2]
    assert "-M north" in asked[3]
    assert "-j 2 " in asked[3]
    me = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert f"-u {me} " in asked[0]


def test_a_thousand_ids(tools: Path) -> None:
    install(tools, "squeue", "true")
    install(tools, "sacct", "true")
    ids = [str(number) for number in range(10**6, 10**6 + 1000)]
    assert slurm.query([]).read(run(["sh"], tools, script([slurm.query(ids)])).stdout).jobs == {}


def test_accounting_is_asked_only_about_what_the_queue_does_not_know_to_live(tools: Path) -> None:
    states = {"1": "RUNNING", "2": "PENDING", "4": "COMPLETED", "5": "COMPLETING", "17": "RUNNING"}
    rows = [f"{number}|{number}|{state}|None|g|n|1:00|2:00|N/A|N/A|a" for number, state in states.items()]
    rows += ["6_1|6|RUNNING|None|g|n|1:00|2:00|N/A|N/A|a", "6_2|6|RUNNING|None|g|n|1:00|2:00|N/A|N/A|a"]
    install(tools, "squeue", "cat <<'EOF'", *(row.replace("|", "\x1f") for row in rows), "EOF")
    install(tools, "sacct", f'echo "$@" >>{tools}/asked')
    ids = ["1", "2", "3", "4", "5", "6_1", "7"]
    jobs = slurm.query([]).read(run(["sh"], tools, script([slurm.query(ids)])).stdout).jobs
    assert "-j 3,4,5,7 " in (tools / "asked").read_text()
    assert (jobs["1"].state, jobs["6_1"].state) == (JobState.RUNNING, JobState.RUNNING)
    assert (
        slurm.query([]).read(run(["sh"], tools, script([slurm.query(["1", "2"])])).stdout).jobs["2"].confirmed
    )
    assert len((tools / "asked").read_text().splitlines()) == 1
    install(tools, "squeue", "echo down >&2; exit 1")
    run(["sh"], tools, script([slurm.query(["1", "2"])]))
    assert "-j 1,2 " in (tools / "asked").read_text()
