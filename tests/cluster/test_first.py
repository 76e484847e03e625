"""`submit --first` on a real Slurm: a run has several jobs, and exactly one of them starts its program."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.sampling import SEED
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

SETTINGS = """
[profiles.tiny]
gpu = "a40"
memory = "50M"
time = "5m"
program = ["sh", "-c", "echo $CLUSTERKIT_RUN_ID >>/share/alice/{root}-started; sleep ${{1:-0}}", "sh"]

[profiles.tiny.retry]
node_failures = 1

[profiles.more]
extends = "tiny"
retry = {{ memory_up_to = "1G" }}
"""
GPUS = {"a40": 4, "a100": 2}
EITHER = ("submit", "--name", "counted", "--first", "gpu:a40,a100")


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User.bare(tmp_path_factory.mktemp("first"), cluster, SETTINGS)


@contextmanager
def full(cluster: Cluster, *types: str) -> Iterator[None]:
    """Let somebody else's jobs hold all GPUs of some types."""
    ids = []
    for kind in types:
        request = [f"--gres=gpu:{kind}:{GPUS[kind]}", f"--partition=gpu-{kind}", "--mem=50M", "--chdir=/"]
        argv = ["sbatch", "--parsable", "--output=/dev/null", *request, "--wrap=sleep 600"]
        ids.append(cluster.run("login", argv, user="bob").stdout.strip())
    until(lambda: all(state(cluster, job) == "RUNNING" for job in ids))
    try:
        yield
    finally:
        cluster.run("login", ["scancel", *ids], user="bob")
        until(lambda: not any(state(cluster, job) in ("RUNNING", "COMPLETING") for job in ids))


def state(cluster: Cluster, job: str) -> str:
    return cluster.run(
        "ctl", ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"], check=False
    ).stdout.strip()


def jobs(user: User) -> dict[str, list[str]]:
    """The states of all jobs in the queue's memory, by run."""
    listed = user.cluster.run("ctl", ["squeue", "-h", "-t", "all", "-u", "alice", "-o", "%j %T"]).stdout
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():
        name, _, word = line.partition(" ")
        if name.startswith("counted-"):
            found.setdefault(name.partition(".")[0], []).append(word)
    return {name: sorted(words) for name, words in found.items()}


def starts(user: User) -> Counter[str]:
    """How often each run's program has started."""
    file = Path(f"{user.root}-started")
    return Counter(file.read_text().split() if file.exists() else ())


def settled(user: User) -> None:
    busy = ["pgrep", "-u", "alice", "-x", "sh|bash|dash|sbatch|sleep"]
    until(lambda: not user.cluster.run("login", busy, check=False).stdout)
    until(lambda: not any(name.startswith("counted-") for name in user.active()))


def test_while_it_waits_all_its_jobs_are_shown_and_cancelled(laptop: User) -> None:
    with full(laptop.cluster, "a40", "a100"):
        run_id = laptop.submits(*EITHER[1:])
        run = laptop.status(run_id)[run_id]
        assert run["state"] == "PENDING"
        assert len(run["others"]) == 1
        assert f"or {run['others'][0]} starts first" in run["why"]
        laptop.types("cancel", run_id, "--yes")
        settled(laptop)
        assert jobs(laptop)[run_id] == ["CANCELLED", "CANCELLED"]
    assert laptop.status(run_id)[run_id]["state"] == "CANCELLED"
    assert starts(laptop)[run_id] == 0


def test_both_start_at_once(laptop: User) -> None:
    """Held by a full cluster, all of them become able to start in the same moment."""
    with full(laptop.cluster, "a40", "a100"):
        ids = [laptop.submits(*EITHER[1:]) for _ in range(4)]
    settled(laptop)
    runs = laptop.ended(*ids)
    assert {run["state"] for run in runs.values()} == {"COMPLETED"}
    for run_id in ids:
        assert starts(laptop)[run_id] == 1
        assert jobs(laptop)[run_id] == ["CANCELLED", "COMPLETED"]


def test_the_one_that_started_is_requeued_and_starts_again(laptop: User) -> None:
    """And what is resumed asks for what that one had: its GPU type, not the first of them."""
    with full(laptop.cluster, "a40"):
        run_id = laptop.submits(*EITHER[1:], "--", "25")
        until(lambda: starts(laptop)[run_id] == 1)
    until(lambda: laptop.status(run_id)[run_id]["others"] == [])
    run = laptop.status(run_id)[run_id]
    laptop.cluster.run("login", ["scontrol", "requeue", run["job_id"]], user="alice")
    until(lambda: starts(laptop)[run_id] == 2)
    again = laptop.status(run_id)[run_id]
    assert (again["job_id"], again["attempt"]) == (run["job_id"], 1)
    laptop.types("cancel", run_id, "--yes")
    settled(laptop)
    assert sorted(jobs(laptop)[run_id]) == ["CANCELLED", "CANCELLED"]
    laptop.types("resume", run_id)
    settled(laptop)
    run = laptop.status(run_id)[run_id]
    assert (run["state"], run["submission"], run["node"]) == ("COMPLETED", 2, "a100n1")
    assert starts(laptop)[run_id] == 3


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_the_client_is_killed_at_any_moment(laptop: User, kills: int) -> None:
    dice = random.Random(SEED)
    before = set(jobs(laptop))
    with full(laptop.cluster, "a40"):
        for _ in range(kills):
            command = laptop.forks(*EITHER)
            try:
                command.communicate(timeout=dice.uniform(0.3, 2.5))
            except subprocess.TimeoutExpired:
                command.send_signal(signal.SIGKILL)
                command.communicate(timeout=60)
        settled(laptop)
        laptop.types("status", "--all")
    found = {run_id: words for run_id, words in jobs(laptop).items() if run_id not in before}
    print(f"{kills} kills, {len(found)} runs with jobs: {Counter(map(tuple, found.values()))}")
    assert found
    for run_id, words in found.items():
        assert words == ["CANCELLED", "COMPLETED"]
        assert starts(laptop)[run_id] == 1


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--first", "cluster:a,b"), "two clusters share no files"),
        (("--first", "gpu:a40"), "at least two"),
        (("--first", "memory:1,2"), "neither gpu: nor partition:"),
        (("--first", "gpu:a40,h100"), "lacks"),
        (("--first", "gpu:a40,a100", "--seeds", "1..3"), "single run"),
        (("--first", "gpu:a40,a100", "--profile", "more"), "memory_up_to"),
        (("--first", "gpu:a40,a100", "--cluster", "local"), "starts a run at once"),
    ],
)
def test_what_cannot_be(laptop: User, words: tuple[str, ...], cause: str) -> None:
    done = laptop.tries("submit", *words)
    assert done.returncode == 3, done.stderr
    assert cause in done.stderr


def test_a_refused_request_does_not_count(laptop: User) -> None:
    done = laptop.tries("submit", "--first", "partition:gpu-a40,nowhere")
    assert done.returncode == 0, done.stderr
    assert "was refused and does not count" in done.stderr
    run_id = done.stdout.strip()
    assert laptop.ended(run_id)[run_id]["state"] == "COMPLETED"
