"""Runs on two nodes of a real cluster: they meet, learn together, fail together, and go on together."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.test_until_done import LEARNS, OPTIONS, Run
from tests.cluster.unfinished import SETTINGS, WAITING
from tests.waiting import until

pytestmark = pytest.mark.timeout(1200)

PROFILES = """
[profiles.pair]
extends = "whole"
gpu = "none"
nodes = 2
cpus = 1
memory = "2G"
sbatch = { partition = "pair" }

[profiles.one-node]
extends = "pair"
nodes = 1
cpus = 2

[profiles.own-program]
extends = "pair"
recipe = "none"
until_done = false
program = ["python", "own.py"]
"""
SECRETS = '\n[secrets]\nnames = ["HF_TOKEN"]\n'
OWN = """
import json, os, sys, time
rank = os.environ["RANK"]
if sys.argv[1] == "fail" and rank == "1":
    sys.exit("rank 1 has had enough")
if sys.argv[1] in ("fail", "wait"):
    open(os.environ["CLUSTERKIT_RUN_DIR"] + "/waiting-" + rank, "w").close()
    time.sleep(600)
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
told = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GLOO_SOCKET_IFNAME")}
told["token"] = len(os.environ.get("HF_TOKEN", ""))
path = os.environ["CLUSTERKIT_RUN_DIR"] + f"/sum-{dist.get_rank()}.json"
open(path, "w").write(json.dumps({**told, "sum": total.item(), "node": os.uname().nodename}))
print("rank", dist.get_rank(), "is done", os.environ.get("HF_TOKEN", ""))
"""


@pytest.fixture(scope="module")
def pair(learner: User) -> Iterator[User]:
    """The person, where one partition has both nodes."""
    cluster, settings = learner.cluster, learner.folder / "clusterkit.toml"
    text = settings.read_text()
    site = text[text.index("[clusters.site]") : text.index("[clusters.site.gpus]")]
    apart = site.replace("[clusters.site]", '[clusters.apart]\ninterface = "ib9"')
    settings.write_text(text + SETTINGS + PROFILES + apart)
    allow(learner.folder)
    (learner.folder / "own.py").write_text(OWN)
    (learner.folder / "waiting.py").write_text(WAITING)
    create = ["scontrol", "create", "PartitionName=pair", "Nodes=a40n1,a100n1", "MaxTime=60", "State=UP"]
    cluster.run("ctl", create)
    learner.types("deploy")
    yield learner
    cluster.run("ctl", ["scontrol", "delete", "PartitionName=pair"])


@pytest.fixture(scope="module")
def runs(pair: User) -> dict[str, Run]:
    """Those that do not disturb one another, at the same time."""
    learns = ("--", "--lockstep", "--log-every", "40")
    asked = {
        "two": ("--profile", "pair", "--name", "whole", *LEARNS, *learns),
        "one": ("--profile", "one-node", "--name", "whole", *LEARNS, *learns, "--ranks", "2"),
        "own": ("--profile", "own-program", "--", "sum"),
        "fail": ("--profile", "own-program", "--", "fail"),
        "torchrun": ("--profile", "own-program", "--name", "torchrun", "--", "sum"),
    }
    settings = pair.folder / "clusterkit.toml"
    text, found = settings.read_text(), {}
    for what, words in asked.items():
        if what == "torchrun":
            launched = '["python", "-m", "torch.distributed.run", "own.py"]'
            settings.write_text(text.replace('["python", "own.py"]', launched) + SECRETS)
        found[what] = Run(pair, pair.types("submit", *words, HF_TOKEN="hf_0123456789").strip())
    settings.write_text(text)
    return found


def test_two_nodes_learn_what_two_ranks_on_one_node_learn(runs: dict[str, Run]) -> None:
    assert [runs[what].ends() for what in ("two", "one")] == ["COMPLETED"] * 2, runs["two"].log(0)
    assert "2 nodes have met at" in runs["two"].log(0)
    assert runs["two"].digest() == runs["one"].digest()


@pytest.mark.parametrize("how", ["own", "torchrun"])
def test_a_program_of_ones_own_finds_the_others(runs: dict[str, Run], how: str) -> None:
    run = runs[how]
    assert run.ends() == "COMPLETED", run.log(0)
    told = [run.record(f"sum-{rank}.json") for rank in (0, 1)]
    assert [each["sum"] for each in told] == [3.0, 3.0]
    assert {each["node"] for each in told} == {"a40n1", "a100n1"}
    assert [each["RANK"] for each in told] == ["0", "1"]
    assert {(each["WORLD_SIZE"], each["LOCAL_RANK"]) for each in told} == {("2", "0")}
    assert {each["GLOO_SOCKET_IFNAME"] for each in told} == {"eth0"}
    assert "rank 0 is done" in run.log(0)
    assert "rank 1 is done" in (run.dir / "attempts/0/ranks/1.log").read_text()


def test_each_node_has_the_secrets_and_masks_them(pair: User, runs: dict[str, Run]) -> None:
    run = runs["torchrun"]
    assert run.ends() == "COMPLETED", run.log(0)
    assert [run.record(f"sum-{rank}.json")["token"] for rank in (0, 1)] == [13, 13]
    assert "rank 0 is done ***\n" in run.log(0)
    assert "rank 1 is done ***\n" in (run.dir / "attempts/0/ranks/1.log").read_text()
    assert list((pair.root / "secrets").iterdir()) == []


def test_a_rank_that_fails_ends_all_and_is_named(runs: dict[str, Run]) -> None:
    run = runs["fail"]
    assert run.ends() == "FAILED"
    ended, begun = run.record("attempts/0/exit.json"), run.record("attempts/0/start.json")
    assert ended["ended"] - begun["started"] < 120
    assert (ended["code"], ended["why"]) == (1, "failed")
    assert re.fullmatch(r"node a\w+n1 failed first \(rank 1\), with exit code 1", ended["detail"])
    assert "[rank 1] rank 1 has had enough" in run.log(0)


def test_nodes_that_cannot_meet_end_at_once_with_the_cause(pair: User, runs: dict[str, Run]) -> None:
    run = Run(pair, pair.submits("--cluster", "apart", "--profile", "own-program", "--", "sum"))
    assert run.ends() == "FAILED"
    ended, begun = run.record("attempts/0/exit.json"), run.record("attempts/0/start.json")
    assert ended["ended"] - begun["started"] < 30
    assert "the nodes cannot meet: on a" in run.log(0)
    assert "there is no network interface ib9 here; there are: eth0" in run.log(0)
    assert "(nodes-apart)" in pair.types("why", run.id)


def test_a_cancelled_run_ends_on_both_nodes(pair: User) -> None:
    run = Run(pair, pair.submits("--profile", "own-program", "--", "wait"))
    until(lambda: (run.dir / "waiting-0").exists() and (run.dir / "waiting-1").exists())
    pair.types("cancel", run.id)
    assert run.ends() == "CANCELLED"
    for node in ("a40n1", "a100n1"):
        found = pair.cluster.run(node, ["pgrep", "-f", "own.py wait"], check=False)
        assert found.stdout == ""
    left = [path.name for path in (pair.root / "scratch").iterdir() if path.name.startswith(run.id)]
    assert left == [], run.log(0)


def test_a_killed_node_and_a_signal_cost_an_attempt_each_and_change_no_number(
    pair: User, cluster: Cluster, runs: dict[str, Run]
) -> None:
    words = ("--profile", "pair", "--name", "broken", "--until-done", *LEARNS, *OPTIONS)
    run = Run(pair, pair.submits(*words))
    until((run.dir / "checkpoints/step-000000000200").exists)
    time.sleep(1)
    cluster.kill_node("a40n1")
    cluster.run("ctl", ["scontrol", "update", "NodeName=a40n1", "State=DOWN", "Reason=dead"])
    until(lambda: run.in_queue() != "RUNNING")
    cluster.start_node("a40n1")
    run.reaches(1)
    cluster.run("login", ["scancel", "-b", "-s", "USR1", run.job()], user="alice")
    assert run.ends() == "COMPLETED", run.log(1)
    ends = [run.record(f"attempts/{number}/exit.json").get("why") for number in range(3)]
    assert ends == [None, "requeue", "completed"]
    assert all(run.record(f"attempts/{number}/start.json")["checkpoint"] for number in (1, 2))
    assert run.digest() == runs["one"].digest()


@pytest.mark.parametrize(("where", "outcome"), [("site", "pass"), ("apart", "fail")])
def test_doctor_tries_the_network_between_two_nodes(pair: User, where: str, outcome: str) -> None:
    words = ("doctor", "--cluster", where, "--profile", "own-program", "--json")
    checks = json.loads(pair.tries(*words).stdout)["checks"]
    (found,) = [check for check in checks if check["name"] == "nodes"]
    assert found["outcome"] == outcome, found
    if where == "site":
        assert re.search(r"10\.\d+\.\d+\.\d+ through eth0: .+/s, \d+\.\d\d ms", found["evidence"])
    else:
        assert "there is no network interface ib9 here" in found["evidence"]
        assert "interface = " in found["cure"]


def test_what_another_rank_has_written_is_printed(pair: User, runs: dict[str, Run]) -> None:
    assert "rank 1 is done" in pair.types("logs", runs["own"].id, "--rank", "1")
    pair.types("sync-results", runs["own"].id)
    assert "is done" in (pair.folder / "results" / runs["own"].id / "attempts/0/ranks/1.log").read_text()
    said = pair.tries("logs", runs["own"].id, "--rank", "7")
    assert "attempt 0 has no log of rank 7" in said.stderr
