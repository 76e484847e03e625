"""Past the time limit on a real cluster: interrupted in every way, a training ends with the same numbers."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.unfinished import EVERY, GROWING, LEARNS, SETTINGS, STEPS, WAITING, WALKING
from tests.doubles.wandb_server import WandbServer
from tests.waiting import until

pytestmark = pytest.mark.timeout(2400)

WAYS = ["requeue", "array", "chain"]
OPTIONS = ("--", "--lockstep", "--log-every", "40")
PATIENCE_SECONDS = 900.0
"""A training that takes a minute takes ten where all else that a machine does is tested meanwhile."""


class Run:
    """One run, watched from outside."""

    def __init__(self, user: User, run_id: str) -> None:
        self.user, self.id = user, run_id
        self.dir = user.root / "runs" / run_id

    def record(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.dir / name).read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def trains_in(self, attempt: int) -> bool:
        """Whether this attempt has got further than the one before."""
        start, beat = self.record(f"attempts/{attempt}/start.json"), self.record("heartbeat.json")
        return bool(start) and beat.get("attempt") == attempt and beat["step"] > (start["step"] or 0)

    def reaches(self, attempt: int) -> None:
        until(lambda: self.trains_in(attempt), PATIENCE_SECONDS)

    def job(self) -> str:
        return str(self.user.status(self.id)[self.id]["job_id"])

    def ends(self) -> str:
        """Its state once its jobs have ended."""
        until(self.out_of_the_queue, PATIENCE_SECONDS)
        return str(self.user.status(self.id)[self.id]["state"])

    def in_queue(self) -> str:
        names = ",".join([self.id, *(f"{self.id}.{number}" for number in range(1, 5))])
        argv = ["squeue", "-h", "-t", "all", "-o", "%T", "--name", names]
        return self.user.cluster.run("login", argv).stdout.strip()

    def out_of_the_queue(self) -> bool:
        return set(self.in_queue().split()) <= {"COMPLETED", "FAILED", "CANCELLED"}

    def log(self, attempt: int) -> str:
        return (self.dir / f"attempts/{attempt}/log").read_text()

    def lines(self, kind: str) -> dict[int, dict[str, Any]]:
        """The metrics of one kind by step, of the highest attempt as the documentation says."""
        found: dict[int, dict[str, Any]] = {}
        for text in (self.dir / "metrics.jsonl").read_text().splitlines():
            line = json.loads(text)
            if line["kind"] == kind and line["attempt"] >= found.get(line["step"], line)["attempt"]:
                found[line["step"]] = line
        return found

    def in_wandb(self, step: int) -> bool:
        """Whether the client has written the row of a step to disk, after its key and two lengths."""
        row = re.compile(rb"env_steps.{3}%d" % step, re.DOTALL)
        return any(row.search(file.read_bytes()) for file in self.dir.glob("wandb/*/*.wandb"))

    def digest(self) -> str:
        """Of the parameters at the end, as the run itself says."""
        text = (self.dir / "metrics.jsonl").read_text()
        (found,) = set(re.findall(r"final model have the sha256 (\w{64})", text))
        return str(found)


@pytest.fixture(scope="module")
def deployed(learner: User) -> User:
    """The person, with profiles of these tests and the image on the cluster."""
    settings = learner.folder / "clusterkit.toml"
    settings.write_text(settings.read_text() + SETTINGS)
    (learner.folder / "growing.py").write_text(GROWING)
    (learner.folder / "walking.py").write_text(WALKING)
    (learner.folder / "waiting.py").write_text(WAITING)
    learner.types("deploy")
    return learner


@pytest.fixture(scope="module")
def drill(deployed: User) -> subprocess.Popen[str]:
    """A drill of the walk that goes on beside the others."""
    return deployed.starts("rehearse", "--profile", "drilled")


@pytest.fixture(scope="module")
def rude(deployed: User) -> Run:
    """A program that knows no signal and dies at its time limit, on the node that nobody kills meanwhile."""
    return Run(deployed, deployed.submits("--profile", "rude", "--", "die"))


def on_controller(run: Run, *changes: str) -> None:
    """Change a run's job as an administrator does, once Slurm allows it: not in the middle of a requeue."""
    argv = ["scontrol", "update", f"JobId={run.job()}", *changes]
    until(lambda: run.user.cluster.run("ctl", argv, check=False).returncode == 0, PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def runs(deployed: User, drill: subprocess.Popen[str], rude: Run) -> tuple[Run, Run, Run]:
    """A walk with a time limit, a requeue, a node failure and a cancel; a training with the node failure and
    a signal, and one that nothing interrupts.

    Slurm looks twice a minute who is near his limit: the next time it warns, or ends, whoever is by then.
    """
    user, cluster = deployed, deployed.cluster
    walk = Run(user, user.submits("--profile", "walking", "--name", "walk"))
    whole = Run(user, user.submits("--profile", "whole", "--name", "whole", *LEARNS, *OPTIONS))
    walk.reaches(0)
    on_controller(walk, "EndTime=now+40")
    until(lambda: any((user.root / "runs").glob("rehearsal-*")), PATIENCE_SECONDS)
    drilled = Run(user, next((user.root / "runs").glob("rehearsal-*")).name)
    drilled.reaches(0)
    on_controller(drilled, "EndTime=now+40")
    until((walk.dir / "attempts/0/exit.json").exists, PATIENCE_SECONDS)  # its time limit
    # The other interruptions shall not be overtaken by the next time limit.
    on_controller(walk, "TimeLimit=60")
    broken = Run(user, user.submits("--profile", "broken", "--name", "broken", *LEARNS, *OPTIONS))
    until((drilled.dir / "attempts/1/start.json").exists, PATIENCE_SECONDS)
    walk.reaches(1)
    cluster.run("login", ["scontrol", "requeue", walk.job()], user="alice")
    walk.reaches(2)
    until(lambda: broken.in_wandb(160), PATIENCE_SECONDS)
    cluster.kill_node("a40n1")
    cluster.run("ctl", ["scontrol", "update", "NodeName=a40n1", "State=DOWN", "Reason=dead"])
    until(lambda: {walk.in_queue(), broken.in_queue()}.isdisjoint({"RUNNING"}), PATIENCE_SECONDS)
    cluster.start_node("a40n1")
    walk.reaches(3)
    user.types("cancel", walk.id)
    assert walk.ends() == "CANCELLED"
    user.types("resume", walk.id, "--time", "1h")
    broken.reaches(1)
    cluster.run("login", ["scancel", "-b", "-s", "USR1", broken.job()], user="alice")
    assert [run.ends() for run in (walk, broken, whole)] == ["COMPLETED"] * 3
    return walk, broken, whole


def test_each_interruption_was_one(runs: tuple[Run, Run, Run]) -> None:
    walk, broken, whole = runs
    ends = [walk.record(f"attempts/{number}/exit.json").get("why") for number in range(5)]
    assert ends[0] in ("requeue", "timeout")
    assert ends[2] is None  # nobody was left to write it
    assert ends[4] == "completed"
    assert not (walk.dir / "attempts/5").exists()
    starts = [walk.record(f"attempts/{number}/start.json") for number in range(5)]
    assert [start["submission"] for start in starts] == [0, 0, 0, 0, 1]
    assert len({start["job_id"] for start in starts}) == 2
    saved = [100, 200, 300 // EVERY * EVERY, 400]
    assert [start["checkpoint"].rpartition("step-")[2] for start in starts[1:]] == [
        str(step) for step in saved
    ]
    ends = [broken.record(f"attempts/{number}/exit.json").get("why") for number in range(3)]
    assert ends == [None, "requeue", "completed"]
    assert all(broken.record(f"attempts/{number}/start.json")["checkpoint"] for number in (1, 2))
    assert whole.record("attempts/0/exit.json")["why"] == "completed"


def test_the_walk_goes_on_from_where_it_was(runs: tuple[Run, Run, Run]) -> None:
    at, states = "", {}
    for step in range(1, STEPS + 1):
        at = states[step] = hashlib.sha256(f"{at} {step}".encode()).hexdigest()
    assert {step: line["at"] for step, line in runs[0].lines("train").items()} == states


def test_it_ends_with_the_parameters_of_the_uninterrupted_run(runs: tuple[Run, Run, Run]) -> None:
    _, broken, whole = runs
    assert broken.digest() == whole.digest()


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_the_metrics_have_every_step_once(runs: tuple[Run, Run, Run], kind: str) -> None:
    broken, whole = (run.lines(kind) for run in runs[1:])
    assert sorted(whole) == sorted(broken)
    numbers = [
        name for name in next(iter(whole.values())) if name.startswith(("return/", "loss/", "success/"))
    ]
    for step, line in whole.items():
        assert {name: broken[step].get(name) for name in numbers} == {
            name: line.get(name) for name in numbers
        }


def test_it_is_one_run_in_wandb(learner: User, runs: tuple[Run, Run, Run]) -> None:
    user, (_, broken, whole) = learner, runs
    with WandbServer() as server:
        ids = [broken.id, whole.id]
        user.types("sync-results", *ids, **server.client_env(user.folder.parent))
        assert set(server.runs) == set(ids)
        arrived = server.runs[broken.id]
        assert arrived.state == "finished"
        steps = {row["env_steps"] for row in arrived.history if any(key.startswith("train/") for key in row)}
        # The client keeps a row until the next one comes: a node that dies takes the last one along.
        missing = [line for step, line in broken.lines("train").items() if step not in steps]
        assert all(not (broken.dir / f"attempts/{one['attempt']}/exit.json").exists() for one in missing)
        assert len(missing) <= 1
        assert server.unknown == []


def test_nothing_is_left_in_scratch(deployed: User, runs: tuple[Run, Run, Run]) -> None:
    # others run beside them, or wait for their next attempt, which takes away what a killed one has left
    ids = tuple(run.id for run in runs)
    left = [path.name for path in (deployed.root / "scratch").iterdir()]
    assert [name for name in left if name.startswith(ids)] == []


def growing(user: User, way: str, *words: str) -> Run:
    """Submit the growing program with a way of going on."""
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text()
    settings.write_text(text.replace("[clusters.site]\n", f'[clusters.site]\ncontinue_by = "{way}"\n'))
    run = Run(user, user.submits("--profile", "growing", *words))
    settings.write_text(text)
    return run


@pytest.fixture(scope="module")
def ways(deployed: User) -> dict[str, Run]:
    """The growing program in all ways, at the same time."""
    return {way: growing(deployed, way) for way in WAYS}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_goes_on_until_the_program_is_done(ways: dict[str, Run], way: str) -> None:
    run = ways[way]
    until(lambda: run.record("attempts/2/exit.json"), PATIENCE_SECONDS)
    assert run.record("attempts/2/exit.json")["why"] == "completed"
    until(run.out_of_the_queue, PATIENCE_SECONDS)
    assert not (run.dir / "attempts/3").exists()
    assert not (run.dir / "stopped.json").exists()
    jobs = [run.record(f"attempts/{number}/start.json")["job_id"] for number in range(3)]
    assert len({job.partition("_")[0] for job in jobs}) == (3 if way == "chain" else 1)
    assert len(set(jobs)) == (1 if way == "requeue" else 3)


def test_a_job_cancelled_by_hand_does_not_come_back(deployed: User) -> None:
    runs = [growing(deployed, way, "--", "checkpoint") for way in WAYS]
    for run in runs:
        until((run.dir / "ready").exists, PATIENCE_SECONDS)
        job = run.record("attempts/0/start.json")["job_id"]
        deployed.cluster.run("login", ["scancel", job], user="alice")
    for run in runs:
        until(run.out_of_the_queue, PATIENCE_SECONDS)
    for run in runs:
        assert run.out_of_the_queue()
        assert not (run.dir / "attempts/1").exists()


TRAINING = """
for process in $(grep -lzsFx trainer /proc/[0-9]*/cmdline); do
  grep -lsF libtorch "${process%/*}/maps"
done
"""


@pytest.mark.exhaustive  # its steps in tests/trainer/test_pack.py; packs of programs in test_groups.py
def test_a_pack_in_one_process_goes_on_together(deployed: User) -> None:
    group = deployed.submits(
        *("--profile", "cart", "--seeds", "1..2", "--pack", "2", "--in-one", "--until-done")
    )
    runs = [Run(deployed, f"{group}-{index}") for index in range(2)]
    for run in runs:
        run.reaches(0)
    rows = deployed.status(group)
    assert {row["state"] for row in rows.values()} == {"RUNNING"}
    assert all(row["progress"] > 0 and not row["stale"] for row in rows.values())
    start = runs[0].record("attempts/0/start.json")
    found = deployed.cluster.run(start["node"], ["sh", "-c", TRAINING], check=False).stdout
    assert len(found.split()) == 1, found
    deployed.cluster.run("login", ["scancel", "-b", "-s", "USR1", start["job_id"]], user="alice")
    for run in runs:
        until(lambda run=run: run.record("attempts/0/exit.json"), PATIENCE_SECONDS)
        assert run.record("attempts/0/exit.json")["code"] == 85
    for run in runs:
        until(lambda run=run: run.record("attempts/1/exit.json"), PATIENCE_SECONDS)
        assert run.record("attempts/1/exit.json")["why"] == "completed"
        assert run.record("attempts/1/start.json")["job_id"] == start["job_id"]
        assert "resumed from step-" in (run.dir / "attempts/1/log").read_text()
        assert run.digest()
    logs = [(run.dir / f"attempts/{attempt}/log").read_text() for run in runs for attempt in (0, 1)]
    assert sum("this process trains 2 runs" in text for text in logs) == 2
    until(Run(deployed, group).out_of_the_queue, PATIENCE_SECONDS)
    assert {row["state"] for row in deployed.status(group).values()} == {"COMPLETED"}


PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=a40n1 PriorityTier=10
"""


@pytest.fixture
def preemption(cluster: Cluster) -> Iterator[None]:
    """A partition whose jobs push others aside."""
    conf = cluster.site.slurm / "slurm.conf"
    before = conf.read_text()
    conf.write_text(before + PREEMPTION)
    cluster.run("ctl", ["scontrol", "reconfigure"])
    yield
    conf.write_text(before)
    cluster.run("ctl", ["scontrol", "reconfigure"])


def test_a_preempted_run_goes_on(deployed: User, preemption: None) -> None:
    run = Run(deployed, deployed.submits("--profile", "growing", "--", "checkpoint"))
    until((run.dir / "ready").exists, PATIENCE_SECONDS)
    urgent = ["sbatch", "-p", "urgent", "--gres=gpu:a40:4", "-o", "/dev/null", "--wrap", "sleep 3"]
    deployed.cluster.run("login", urgent, user="bob")
    until(lambda: run.record("attempts/2/exit.json"), PATIENCE_SECONDS)
    assert run.record("attempts/2/exit.json")["why"] == "completed"
    until(run.out_of_the_queue, PATIENCE_SECONDS)


def test_a_program_that_dies_at_its_limit_goes_on_if_it_got_further(rude: Run) -> None:
    until(lambda: rude.record("attempts/2/exit.json"), PATIENCE_SECONDS)
    assert rude.record("attempts/0/exit.json")["why"] == "timeout"
    assert rude.record("attempts/2/exit.json")["why"] == "completed"


def test_the_drill_says_that_it_works(drill: subprocess.Popen[str]) -> None:
    said, noted = drill.communicate(timeout=PATIENCE_SECONDS)
    assert drill.returncode == 0, said + noted
    assert "FAIL" not in said
    assert said.count("ok  ") == 3, said
    assert "gets past its time limit here" in said


@pytest.mark.exhaustive  # its program in tests/trainer/test_train.py, its words in test_rehearsal.py
def test_the_drill_of_a_training(deployed: User) -> None:
    said = deployed.types("rehearse", "--profile", "training")
    assert "FAIL" not in said
    assert said.count("ok  ") == 7, said
