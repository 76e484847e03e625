"""Groups larger than the queue takes, on a Slurm with limits: their own jobs submit the rest, once each."""

from __future__ import annotations

import collections
import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import own_cluster
from tests.cluster.laptop import User
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1500)]

LIMITS = "AccountingStorageEnforce=associations,limits,qos\n"
ACCOUNTS = """
sacctmgr -i add account lab
sacctmgr -i add user alice account=lab
sacctmgr -i modify user alice where account=lab set MaxSubmitJobs=5
scontrol reconfigure
"""
SETTINGS = """
[profiles.tiny]
program = ["sh", "program.sh"]
cpus = 1
memory = "100M"
time = "5m"

[profiles.trial]
program = ["sh", "trial.sh"]
cpus = 1
memory = "100M"
time = "5m"
"""
PROGRAM = """
date >>"$CLUSTERKIT_RUN_DIR/started"
echo "seed $CLUSTERKIT_SEED"
sleep "$1"
"""
TRIAL = """
date >>"$CLUSTERKIT_RUN_DIR/started"
cd "$CLUSTERKIT_RUN_DIR"
for step in 1 2 3; do
  printf '{"kind": "train", "step": %s, "height": %s}\\n' $step $(($1 * step)) >>metrics.jsonl
done
until [ -e ../../trials-may-end ]; do sleep 0.2; done
"""
PATIENCE_SECONDS = 1200.0


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of its own, where alice may have five jobs, and an array ten tasks."""
    with own_cluster() as running:
        config = running.site.slurm / "slurm.conf"
        text = re.sub(r"^(SchedulerParameters=.*)$", r"\1,max_array_tasks=10", config.read_text(), flags=re.M)
        config.write_text(text + LIMITS)
        running.run("ctl", ["sh", "-ec", ACCOUNTS])
        yield running


@pytest.fixture(scope="module")
def user(site: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    programs = {"program.sh": PROGRAM, "trial.sh": TRIAL}
    return User.bare(tmp_path_factory.mktemp("laptop"), site, SETTINGS, programs)


def completed(user: User, name: str) -> collections.Counter[str]:
    """How many completed jobs Slurm has booked of each id, of all jobs whose name begins so."""
    argv = ["sacct", "-n", "-P", "-X", "-D", "-u", "alice", "-S", "now-1days"]
    said = user.cluster.run("ctl", [*argv, "-o", "JobID,JobName%100,State"]).stdout
    rows = [line.split("|") for line in said.splitlines()]
    return collections.Counter(
        job for job, title, state in rows if title.startswith(name) and state == "COMPLETED"
    )


def finished(user: User, group: str, size: int) -> bool:
    runs = (user.root / "runs").glob(f"{group}-*/attempts/*/exit.json")
    return sum('"why": "completed"' in path.read_text() for path in runs) >= size


def starts(user: User, group: str, *indices: int | str) -> list[int]:
    """How often the programs of these runs have started."""
    folders = [user.root / f"runs/{group}-{index}" for index in indices]
    return [len((folder / "started").read_text().splitlines()) for folder in folders]


@pytest.mark.parametrize("size", [16, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_each_run_is_submitted_once_though_the_laptop_is_gone(user: User, size: int) -> None:
    """And, of many, though a node dies."""
    command = user.forks("submit", "--seeds", f"1..{size}", "--name", f"gone{size}", "--yes", "--", "0.3")
    runs = user.root / "runs"
    until(lambda: [*runs.glob(f"gone{size}-*/attempts/0")] or command.poll() is not None, PATIENCE_SECONDS)
    command.kill()
    command.communicate()
    group = next(runs.glob(f"gone{size}-*")).name.rpartition("-")[0]
    if size > 16:
        until(lambda: finished(user, group, 50), PATIENCE_SECONDS)
        user.cluster.kill_node("a40n1")
        user.cluster.run("ctl", ["scontrol", "update", "NodeName=a40n1", "State=DOWN", "Reason=dead"])
        time.sleep(5)
        user.cluster.start_node("a40n1")
    until(lambda: finished(user, group, size), PATIENCE_SECONDS)
    states = user.status(group)
    assert {state["state"] for state in states.values()} == {"COMPLETED"}
    if size == 16:
        assert starts(user, group, *(f"{index:02}" for index in range(size))) == [1] * size
    until(lambda: sum(completed(user, group).values()) == size)
    assert set(completed(user, group).values()) == {1}
    login = user.cluster.run("login", ["pgrep", "-u", "alice", "-f", "feed.sh"], check=False)
    assert login.stdout == ""


def test_what_waits_is_shown_and_cancelled(user: User) -> None:
    group = user.submits("--seeds", "1..9", "--name", "many", "--", "30")
    states = [run["state"] for run in user.status(group).values()]
    assert states.count("DEFERRED") == 4, states
    assert "4 deferred" in user.types("status", group)
    waiting = [run_id for run_id, run in user.status(group).items() if run["state"] == "DEFERRED"]
    assert "(deferred)" in user.types("why", waiting[0])
    user.types("cancel", waiting[-1])
    assert user.status(waiting[-1])[waiting[-1]]["state"] == "CANCELLED"
    user.types("cancel", "--group", group, "--yes")
    until(lambda: not any(name.startswith(group) for name in user.active()))
    time.sleep(3)
    assert not any(name.startswith(group) for name in user.active())
    assert {run["state"] for run in user.status(group).values()} == {"CANCELLED"}
    folders = [user.root / "runs" / run_id for run_id in waiting]
    assert not any((folder / "started").exists() for folder in folders)


def test_a_group_whose_jobs_are_all_gone_goes_on_by_resume(user: User) -> None:
    group = user.submits("--seeds", "1..7", "--name", "lost", "--", "20")
    runs = user.root / "runs"
    until(lambda: len([*runs.glob(f"{group}-*/started")]) == 5)
    jobs = user.cluster.run("ctl", ["squeue", "-h", "-u", "alice", "-o", "%A"]).stdout.split()
    user.cluster.run("ctl", ["scancel", "-s", "KILL", "-b", *jobs])
    user.cluster.run("ctl", ["scancel", *jobs])
    until(lambda: not any(name.startswith(group) for name in user.active()))
    assert [run["state"] for run in user.status(group).values()].count("DEFERRED") == 2
    said = user.tries("resume", group)
    assert "the queue took 2 more of its jobs" in said.stderr, said
    until(lambda: all((runs / f"{group}-{seed}/attempts/0/exit.json").exists() for seed in (5, 6)))
    assert starts(user, group, 5, 6) == [1, 1]


def test_a_search_waits_for_the_queue_and_goes_on_after_its_driver_was_killed(user: User) -> None:
    words = (
        "--profile",
        "trial",
        "--space",
        "x=1:9",
        "--metric",
        "height",
        "--trials",
        "7",
        "--at-once",
        "7",
    )
    driver = user.forks("search", "steep", *words, "--prune", "none", "--", "{x}")
    runs = user.root / "runs"
    until(lambda: [*runs.glob("steep-*/started")] or driver.poll() is not None, PATIENCE_SECONDS)
    driver.kill()
    driver.communicate()
    driver = user.starts("search", "steep")
    assert driver.stderr is not None
    said = iter(driver.stderr.readline, "")
    assert any("waits until another has ended" in line for line in said)  # five jobs are allowed
    (runs.parent / "trials-may-end").touch()
    _, rest = driver.communicate()
    assert driver.returncode == 0, rest
    found = json.loads(user.types("search", "steep", "--best", "--json"))
    trials = {one["run_id"]: one for one in found["trials"]}
    assert [one["state"] for one in trials.values()] == ["complete"] * 7
    assert {path.name for path in runs.glob("steep-*")} == set(trials)
    assert starts(user, found["group"], *range(7)) == [1] * 7
    assert found["trials"][0]["value"] == 3 * max(int(one["values"]["x"]) for one in trials.values())
    assert set(completed(user, found["group"]).values()) == {1}
