"""Groups of runs on a real Slurm: job arrays, packs, dependencies, pipelines, and a submit that is killed."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.trouble import queue
from tests.sampling import SEED
from tests.waiting import until

pytestmark = pytest.mark.timeout(900)

SETTINGS = """
[profiles.tiny]
program = ["sh", "program.sh"]
gpu = "a40"
cpus = 1
memory = "300M"
time = "5m"

[profiles.second]
extends = "tiny"
time = "6m"
"""
CONTAINED = """
[clusters.contained]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
image = "{image}"

[clusters.contained.gpus]
a40 = {{ partition = "gpu-a40", request = "--gpus={{type}}:{{count}}" }}
"""
PROGRAM = """
trap 'exit 85' USR1
echo "hello from $CLUSTERKIT_RUN_ID with $*, seed $CLUSTERKIT_SEED"
echo "$CUDA_VISIBLE_DEVICES" >"$CLUSTERKIT_RUN_DIR/gpu"
grep Cpus_allowed_list /proc/self/status >"$CLUSTERKIT_RUN_DIR/cpus"
echo "$SLURM_CPUS_PER_TASK" >>"$CLUSTERKIT_RUN_DIR/cpus"
[ -z "$CLUSTERKIT_PREVIOUS_RUN_DIR" ] || cat "$CLUSTERKIT_PREVIOUS_RUN_DIR/gpu" >"$CLUSTERKIT_RUN_DIR/before"
i=0
while [ $i -lt $((10 * ${CLUSTERKIT_SWEEP_SECONDS:-1})) ]; do sleep 0.1; i=$((i + 1)); done
while [ -n "${CLUSTERKIT_SWEEP_HELD:-}" ] && [ ! -e "$CLUSTERKIT_RUN_DIR/go" ]; do sleep 0.1; done
exit "${CLUSTERKIT_SWEEP_CODE:-0}"
"""


@pytest.fixture(scope="module")
def user(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User.bare(tmp_path_factory.mktemp("laptop"), cluster, SETTINGS, {"program.sh": PROGRAM})


def run_dir(user: User, run_id: str) -> Path:
    return user.root / "runs" / run_id


def go(user: User, *run_ids: str) -> None:
    """Let runs that are held end."""
    for run_id in run_ids:
        (run_dir(user, run_id) / "go").touch()


def until_over(user: User, *names: str) -> dict[str, str]:
    """Wait until no run of that name is active; returns the states in the order of the run ids.

    `status` is asked when the queue has changed, and now and then: it does not show a pack's single runs.
    """
    deadline = time.monotonic() + 300
    while True:
        seen, asked = queue(user.cluster), time.monotonic()
        states = {run_id: run["state"] for run_id, run in user.status(*names).items()}
        if not {"PENDING", "RUNNING", "COMPLETING", "SUBMITTING", "REQUEUED"} & set(states.values()):
            return dict(sorted(states.items()))
        assert time.monotonic() < deadline, states
        while queue(user.cluster) == seen and time.monotonic() < asked + 5:
            time.sleep(0.2)


def record(user: User, run_id: str, name: str, attempt: int = 0) -> dict[str, Any]:
    return dict(json.loads((run_dir(user, run_id) / f"attempts/{attempt}/{name}.json").read_text()))


def jobs(user: User) -> list[str]:
    """The names of all jobs that Slurm has seen, one for each array."""
    argv = ["sacct", "-n", "-P", "-X", "-u", "alice", "-S", "now-1days", "-o", "JobID,JobName%100"]
    rows = [line.split("|") for line in user.cluster.run("ctl", argv).stdout.splitlines()]
    return sorted({f"{job_id.partition('_')[0]} {name}" for job_id, name in rows})


@contextmanager
def scheduler_parameter(cluster: Cluster, text: str) -> Iterator[None]:
    """Slurm with one more SchedulerParameters."""
    conf = cluster.site.slurm / "slurm.conf"
    before = conf.read_text()
    conf.write_text(re.sub(r"^(SchedulerParameters=.*)$", rf"\1,{text}", before, flags=re.MULTILINE))
    cluster.run("ctl", ["scontrol", "reconfigure"])
    try:
        yield
    finally:
        conf.write_text(before)
        cluster.run("ctl", ["scontrol", "reconfigure"])


def test_seeds_are_one_array_and_at_most_so_many_run_at_a_time(user: User) -> None:
    with user.logging_in(times=1):
        group = user.submits("--seeds", "7..9", "--max-parallel", "2", "--", "--seed", "{seed}")
    states = until_over(user, group)
    assert list(states) == [f"{group}-{index}" for index in range(3)]
    assert set(states.values()) == {"COMPLETED"}
    ids = [record(user, run_id, "start")["job_id"] for run_id in states]
    assert [job_id.partition("_")[2] for job_id in ids] == ["0", "1", "2"]
    assert len({job_id.partition("_")[0] for job_id in ids}) == 1
    spans = [
        (record(user, run_id, "start")["started"], record(user, run_id, "exit")["ended"]) for run_id in states
    ]
    assert max(sum(start < at < end for start, end in spans) for at, _ in spans) <= 2
    assert spans[2][0] >= min(spans[0][1], spans[1][1])
    assert f"hello from {group}-1 with --seed 8" in user.types("logs", f"{group}-1")
    spec = json.loads((run_dir(user, f"{group}-1") / "run.json").read_text())
    assert spec["group"] == {"id": group, "index": 1, "size": 3}
    assert spec["sweep"] == {"seed": "8"}
    assert (run_dir(user, f"{group}-1") / "slurm.log").exists()


def test_a_pack_shares_a_gpu_and_one_failure_takes_nobody_along(user: User) -> None:
    group = user.submits("--sweep", "code=3,0", "--seeds", "1..2", "--sweep", "seconds=3", "--pack", "4")
    states = until_over(user, group)
    assert list(states.values()) == ["FAILED", "FAILED", "COMPLETED", "COMPLETED"]
    folders = [run_dir(user, run_id) for run_id in states]
    assert len({record(user, run_id, "start")["job_id"] for run_id in states}) == 1
    assert {(folder / "gpu").read_text() for folder in folders} == {"0\n"}
    assert {(folder / "cpus").read_text().splitlines()[1] for folder in folders} == {"1"}
    assert record(user, f"{group}-0", "exit")["code"] == 3
    assert f"hello from {group}-2" in user.types("logs", f"{group}-2")


def test_the_tasks_of_an_array_go_on_one_by_one(user: User) -> None:
    group = user.submits("--sweep", "held=1,2", "--until-done")
    runs = [f"{group}-0", f"{group}-1"]
    until(lambda: all((run_dir(user, run_id) / "gpu").exists() for run_id in runs))
    for run_id in runs:
        job_id = record(user, run_id, "start")["job_id"]
        user.cluster.run("login", ["scancel", "-b", "-s", "USR1", job_id], user="alice")
    until(lambda: all((run_dir(user, run_id) / "attempts/1/start.json").exists() for run_id in runs))
    go(user, *runs)
    assert list(until_over(user, group).values()) == ["COMPLETED", "COMPLETED"]
    for run_id in runs:
        assert record(user, run_id, "exit")["why"] == "requeue"
        assert record(user, run_id, "start", 1)["job_id"] == record(user, run_id, "start")["job_id"]


def test_after_waits_for_success(user: User) -> None:
    parent = user.submits("--sweep", "held=1", "--name", "parent")
    child = user.submits("--after", parent, "--name", "child")
    assert user.status(child)[child]["state"] == "PENDING"
    assert "waits for the job it depends on" in user.status(child)[child]["why"]
    go(user, f"{parent}-0")
    assert until_over(user, parent, child)[child] == "COMPLETED"
    assert record(user, child, "start")["started"] >= record(user, f"{parent}-0", "exit")["ended"]
    late = user.submits("--after", parent, "--name", "late")
    assert until_over(user, late)[late] == "COMPLETED"


def test_after_a_failure_nothing_starts_and_nothing_waits_for_ever(user: User) -> None:
    parent = user.submits("--sweep", "held=1", "--sweep", "code=1", "--name", "failing")
    child = user.submits("--after", parent, "--name", "child")
    anyhow = user.submits("--after", f"{parent}:any", "--name", "anyhow")
    go(user, f"{parent}-0")
    states = until_over(user, parent, child, anyhow)
    assert (states[f"{parent}-0"], states[child], states[anyhow]) == ("FAILED", "CANCELLED", "COMPLETED")
    assert "never started" in user.status(child)[child]["why"]
    refused = user.tries("submit", "--after", parent)
    assert refused.returncode == 8
    assert "would never start" in refused.stderr


def test_the_stages_of_a_pipeline_follow_each_other(user: User) -> None:
    with user.logging_in(times=1):
        group = user.submits("--sweep", "code=0,2", "--then", "second")
    states = until_over(user, group)
    assert list(states.values()) == ["COMPLETED", "FAILED", "COMPLETED", "CANCELLED"]
    assert record(user, f"{group}-2", "start")["started"] >= record(user, f"{group}-0", "exit")["ended"]
    assert (run_dir(user, f"{group}-2") / "before").read_text() == (
        run_dir(user, f"{group}-0") / "gpu"
    ).read_text()


def test_a_stage_in_a_container_may_read_the_one_before(user: User, small_sif: Path) -> None:
    toml = user.folder / "clusterkit.toml"
    words = {"ssh_config": user.cluster.ssh_config, "image": small_sif, "root": user.root.name}
    toml.write_text(toml.read_text() + CONTAINED.format(**words))
    allow(user.folder)
    user.types("deploy", "-c", "contained")
    group = user.submits("-c", "contained", "--seeds", "1", "--then", "second")
    assert list(until_over(user, group).values()) == ["COMPLETED"] * 2
    folder = run_dir(user, f"{group}-1")
    assert (folder / "before").read_text() == (run_dir(user, f"{group}-0") / "gpu").read_text() != ""
    assert not list((run_dir(user, "x").parent.parent / "scratch").iterdir())


def test_a_killed_submit_makes_no_job_twice(user: User) -> None:
    """Killed ever later: status tells what has come of it, and each part is one job or none.

    At every step in tests/commands/test_exactly_once.py.
    """
    states: list[str] = []
    dice = random.Random(SEED)
    runs = run_dir(user, "x").parent

    def in_queue(name: str) -> bool:
        return any(job.startswith(name) for job in queue(user.cluster))

    moments: list[Callable[[str], object]] = [lambda name: [*runs.glob(f"{name}*")], in_queue]
    with scheduler_parameter(user.cluster, "max_array_tasks=2"):
        for number, has_come in enumerate(moments):
            name = f"killed{number}"
            command = user.forks("submit", "--seeds", "1..3", "--sweep", "seconds=0", "--name", name)
            until(lambda: has_come(name) or command.poll() is not None)  # noqa: B023
            time.sleep(dice.uniform(0, 0.2))
            command.kill()
            command.communicate()
    everything = json.loads(user.types("status", "--json", "--all"))["runs"]
    killed = [run["run_id"] for run in everything if run["run_id"].startswith("killed")]
    if killed:
        states = list(until_over(user, *killed).values())
    assert set(states) <= {"COMPLETED", "NOT_SUBMITTED"}, states
    names = [line.partition(" ")[2] for line in jobs(user) if " killed" in line]
    assert len(names) == len(set(names)), names
    started = [path for path in run_dir(user, "x").parent.glob("killed*") if (path / "attempts/0").exists()]
    assert all(not (path / "attempts/1").exists() for path in started)
    assert len(started) == states.count("COMPLETED")
