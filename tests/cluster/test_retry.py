"""`[retry]` on a real Slurm: more memory after a kill by the kernel, another node after a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

SETTINGS = """
[profiles.tiny]
program = ["python3", "train.py"]
memory = "60M"
time = "10m"

[profiles.tiny.retry]
memory_up_to = "150M"
node_failures = 1

[profiles.tiny.sbatch]
partition = "gpu-a40,gpu-a100"

[profiles.chained]
extends = "tiny"
until_done = true

[clusters.array]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
container = "none"
continue_by = "array"
"""
CHAIN = SETTINGS[SETTINGS.index("[clusters.array]") :].replace("array", "chain")

PROGRAM = """
import os, pathlib, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
checkpoints = run / "checkpoints"
what, found = sys.argv[1], sorted(checkpoints.glob("step-*"))
(checkpoints / f"step-{len(found) + 1}").mkdir(parents=True)
print("from", found[-1].name if found else "nothing", flush=True)
if what.isdigit():
    filled = bytearray(os.urandom(1)) * (int(what) << 20)
while what == "goes-on" and not (run / "enough").exists():
    time.sleep(0.2)
"""
KINDS = {
    "grows": ("80",),
    "too-large": ("300",),
    "requeue": ("80", "--profile", "chained"),
}
ENDED = {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED"}


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A person whose project asks for retries."""
    return User.bare(tmp_path_factory.mktemp("healing"), cluster, SETTINGS + CHAIN, {"train.py": PROGRAM})


@pytest.fixture(scope="module")
def ids(laptop: User) -> dict[str, str]:
    """Runs of each kind, by name; `group-0` and `group-1` are a group's."""
    found = {
        name: laptop.submits("--name", name, *options, "--", program)
        for name, (program, *options) in KINDS.items()
    }
    for way in ("array", "chain"):
        found[way] = laptop.submits("--name", way, "--profile", "chained", "--cluster", way, "--", "80")
    group = laptop.submits("--name", "group", "--sweep", "size=80,1", "--", "{size}")
    return found | {f"group-{index}": f"{group}-{index}" for index in range(2)}


@pytest.fixture(scope="module")
def ended(laptop: User, ids: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How they end."""

    def found() -> dict[str, dict[str, Any]]:
        shown = laptop.status()
        return {name: shown[identity] for name, identity in ids.items()}

    until(lambda: all(run["state"] in ENDED for run in found().values()))
    return found()


def test_a_run_out_of_memory_is_tried_again_with_twice_as_much(
    laptop: User, ended: dict[str, dict[str, Any]]
) -> None:
    run = ended["grows"]
    assert (run["state"], run["attempt"], run["submission"]) == ("COMPLETED", 1, 1)
    assert run["why"] == "try 2, with 120M after out of memory"
    assert why(laptop, run["run_id"])["evidence"][-1]["text"] == run["why"]
    assert requested(laptop, run) == "120M"
    first, second = logs(laptop, run["run_id"])
    assert "from nothing" in first
    assert "tried again with 120M" in first
    assert "from step-1" in second, "it begins with its checkpoint"


def test_the_most_memory_is_not_exceeded(laptop: User, ended: dict[str, dict[str, Any]]) -> None:
    run = ended["too-large"]
    assert (run["state"], run["attempt"]) == ("OUT_OF_MEMORY", 2)
    assert requested(laptop, run) == "150M", "60M, 120M, and not 240M"
    assert "try 3, with 150M after out of memory" in run["why"]
    assert "150M is the most that memory_up_to allows" in run["why"]
    told = why(laptop, run["run_id"])
    assert told["cause"] == "out-of-memory"
    seen = [line["text"] for line in told["evidence"]]
    assert "not tried again: 150M is the most that memory_up_to allows" in seen
    assert "try 3, with 150M after out of memory" in seen
    assert "does it by itself" not in told["cure"]


@pytest.mark.parametrize("way", ["requeue", "array", "chain"])
def test_a_run_that_goes_on_past_its_limit_is_tried_again_too(
    laptop: User, ended: dict[str, dict[str, Any]], way: str
) -> None:
    run = ended[way]
    assert (run["state"], run["until_done"], run["attempt"]) == ("COMPLETED", way, 1)
    assert run["why"] == "try 2, with 120M after out of memory"
    assert requested(laptop, run) == "120M"
    until(lambda: not {name for name in laptop.active() if run["run_id"] in name})


def test_of_a_group_only_the_run_that_ran_out_is_tried_again(
    laptop: User, ended: dict[str, dict[str, Any]]
) -> None:
    grown, other = ended["group-0"], ended["group-1"]
    assert (grown["state"], grown["attempt"]) == ("COMPLETED", 1)
    assert (other["state"], other["attempt"], other["why"]) == ("COMPLETED", 0, None)
    assert requested(laptop, grown) == "120M"


def test_after_a_node_failure_it_leaves_the_node(laptop: User, ended: dict[str, dict[str, Any]]) -> None:
    """The other node is busy until the job has started again on the one that failed."""
    assert ended
    cluster = laptop.cluster
    busy = cluster.run(
        "login",
        ["sbatch", "--parsable", "-p", "gpu-a100", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300"],
        user=cluster.user,
    ).stdout.strip()
    run_id = laptop.submits("--name", "unlucky", "--", "goes-on")
    attempts = laptop.root / "runs" / run_id / "attempts"
    until((attempts / "0/start.json").exists)
    cluster.kill_node("a40n1")
    until(lambda: "down" in states_of(cluster)["a40n1"])
    cluster.start_node("a40n1")
    log = attempts.parent / "slurm.log"
    until(lambda: "node a40n1 failed before: the job asks" in log.read_text())
    cluster.run("login", ["scancel", busy], user=cluster.user)
    until((attempts / "1/start.json").exists)
    start = json.loads((attempts / "1/start.json").read_text())
    assert (start["node"], start["retry"]) == ("a100n1", "after node a40n1 failed")
    assert laptop.status(run_id)[run_id]["why"] == "try 2, after node a40n1 failed"
    (attempts.parent / "enough").touch()
    assert laptop.ended(run_id)[run_id]["state"] == "COMPLETED"


def states_of(cluster: Cluster) -> dict[str, str]:
    listed = cluster.run("ctl", ["sinfo", "-h", "-N", "-o", "%N %T"]).stdout
    return dict(line.split(maxsplit=1) for line in listed.splitlines())


def requested(user: User, run: dict[str, Any]) -> str:
    """The memory that its newest job asked Slurm for."""
    job = str(run["job_id"]).partition("_")[0]
    argv = ["sacct", "-X", "-n", "-P", "-o", "ReqMem", "-j", job]
    return user.cluster.run("ctl", argv).stdout.split()[0]


def why(user: User, run_id: str) -> dict[str, Any]:
    return dict(json.loads(user.types("why", "--json", run_id)))


def logs(user: User, run_id: str) -> list[str]:
    attempts = user.root / "runs" / run_id / "attempts"
    return [(attempts / f"{number}/log").read_text() for number in range(len(list(attempts.iterdir())))]
