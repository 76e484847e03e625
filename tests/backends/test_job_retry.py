"""When job.sh tries again, and when no more; a real kill is in tests/cluster/test_retry.py."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.backends.runs import Run
from tests.backends.sites import Site, site

V1 = "9:cpu:/\n4:memory:/slurm/uid_1/job_7/step_batch/task_0\n0::/\n"
V2 = "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n"


@pytest.mark.parametrize(
    ("groups", "file", "said"),
    [
        (V1, "memory/slurm/uid_1/job_7/step_batch/task_0/memory.oom_control", "1"),
        ("4:cpu,memory:/job\n0::/\n", "memory/job/memory.oom_control", "1"),
        (V2, "system.slice/slurmstepd.scope/job_7/step_batch/user/task_0/memory.events", "1"),
        (V2, "elsewhere", ""),
        ("", "elsewhere", ""),
    ],
)
def test_the_kernels_count_of_kills(tmp_path: Path, groups: str, file: str, said: str) -> None:
    script = Run(tmp_path, job={"options": ("--mem=60M",), "memory_up_to": 1 << 30}).script
    match = re.search(r"^oom_kills\(\) \{.*?^\}", script, re.M | re.S)
    assert match
    counts = tmp_path / "groups" / file
    counts.parent.mkdir(parents=True)
    counts.write_text("oom_kill_disable 0\nunder_oom 0\noom 3\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "of-this-process").write_text(groups)
    elsewhere = match[0].replace("/proc/self/cgroup", f"{tmp_path}/of-this-process")
    elsewhere = elsewhere.replace("/sys/fs/cgroup", f"{tmp_path}/groups")
    done = subprocess.run(["bash", "-uc", f"{elsewhere}\noom_kills"], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (said, "")


@pytest.mark.parametrize("program", ["sys.exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_the_kernel_did_not_kill_is_not_tried_again(tmp_path: Path, program: str) -> None:
    here = site(tmp_path, program, way="", options=("--mem=60M",), memory_up_to=1 << 30)
    here.request()
    here.answers("sbatch", "echo 8")
    here.attempt()
    assert here.calls == []
    assert "detail" not in here.run.exit


def lost_on(here: Site, *nodes: str) -> None:
    """Attempts of the job that ended without a record."""
    for number, node in enumerate(nodes):
        folder = here.run.dir / f"attempts/{number}"
        folder.mkdir(parents=True)
        (folder / "start.json").write_text(json.dumps({"job_id": "7", "node": node, "submission": 0}))


def healing(tmp_path: Path, *nodes: str) -> Site:
    here = site(tmp_path, "print('trains')", way="", node_failures=2)
    here.answers("sbatch", "")
    lost_on(here, *nodes)
    return here


def start(here: Site, attempt: int) -> dict[str, Any]:
    return dict(json.loads((here.run.dir / f"attempts/{attempt}/start.json").read_text()))


def test_another_node_is_taken_as_it_is(tmp_path: Path) -> None:
    here = healing(tmp_path, "n1")
    assert here.attempt(SLURMD_NODENAME="n2") == 0
    assert here.calls == []
    assert start(here, 1)["retry"] == "after node n1 failed"


def test_a_node_that_failed_is_left_where_another_would_do(tmp_path: Path) -> None:
    here = healing(tmp_path, "n1", "n2")
    assert here.attempt(SLURMD_NODENAME="n1") == 0
    assert here.calls == [
        f"sbatch --test-only --exclude=n1,n2 {here.run.path}",
        "scontrol requeue 7",
        "scontrol update JobId=7 ExcNodeList=n1,n2",
    ]
    assert not (here.run.dir / "attempts/2").exists(), "leaving is no attempt"


@pytest.mark.parametrize(("command", "answer"), [("sbatch", "exit 1"), ("scontrol", "echo disabled; exit 1")])
def test_it_stays_where_no_other_node_would_do(tmp_path: Path, command: str, answer: str) -> None:
    here = healing(tmp_path, "n1")
    here.answers(command, answer)
    assert here.attempt(SLURMD_NODENAME="n1") == 0
    assert here.run.exit["why"] == "completed"


def test_node_failures_are_counted(tmp_path: Path) -> None:
    here = healing(tmp_path, "n1", "n2", "n3")
    assert here.attempt(SLURMD_NODENAME="n4") == 1
    assert here.run.exit["detail"] == "not tried again: 3 nodes failed, and node_failures allows 2"
    assert "trains" not in here.run.output


def test_an_attempt_with_an_end_or_of_another_job_did_not_lose_its_node(tmp_path: Path) -> None:
    here = healing(tmp_path, "n1", "n2")
    (here.run.dir / "attempts/0/exit.json").write_text("{}")
    (here.run.dir / "attempts/1/start.json").write_text('{"job_id": "6", "node": "n2"}')
    assert here.attempt(SLURMD_NODENAME="n1") == 0
    assert (here.calls, "retry" in start(here, 2)) == ([], False)
