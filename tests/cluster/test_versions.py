"""The short path on an older or a newer Slurm, day by day; the rest of the tests can be run on them by hand.

`CLUSTERKIT_TESTBED_SUITE=sid pytest tests/cluster` takes the newer one for all of them (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.fixtures import own_cluster
from tests.cluster.laptop import User
from tests.cluster.rootfs import VERSIONS
from tests.sampling import sampled
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SETTINGS = """
[profiles.tiny]
program = ["sh", "program.sh"]
gpu = "a40"
cpus = 1
memory = "60M"
time = "10m"
signal = "USR1"

[profiles.grows]
extends = "tiny"

[profiles.grows.retry]
memory_up_to = "300M"
node_failures = 1
"""
PROGRAM = """
case $1 in
  fails) echo "this is wrong" >&2; exit 3 ;;
  eats) python3 -c 'import os; block = bytearray(os.urandom(1)) * (100 << 20)' || exit ;;
  sleeps) sleep 300 ;;
  goes-on)
    mkdir -p "$CLUSTERKIT_RUN_DIR/checkpoints/step-000000000001"
    test "$CLUSTERKIT_ATTEMPT" = 0 || exit 0
    trap 'exit 85' USR1
    touch "$CLUSTERKIT_RUN_DIR/waits"
    sleep 100 & wait ;;
esac
echo "says $1"
"""
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"}


@dataclass(frozen=True)
class Laptop:
    """A person whose cluster has that Slurm."""

    user: User
    version: str

    def ends(self, run_id: str) -> dict[str, object]:
        """The run's status once it has ended."""
        until(lambda: self.user.status(run_id)[run_id]["state"] in ENDED)
        return self.user.status(run_id)[run_id]


@pytest.fixture(scope="module", params=sampled(VERSIONS, 1))
def laptop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with own_cluster(suite=request.param) as running:
        if request.param == "sid":
            with (running.site.slurm / "slurm.conf").open("a") as config:
                config.write("SlurmctldParameters=enable_expedited_requeue\n")
            running.run("ctl", ["scontrol", "reconfigure"])
        user = User.bare(tmp_path_factory.mktemp("versions"), running, SETTINGS, {"program.sh": PROGRAM})
        with user.keeping_login():
            yield Laptop(user, VERSIONS[request.param])


def test_it_is_that_version(laptop: Laptop) -> None:
    assert f" {laptop.version}." in laptop.user.cluster.run("login", ["sinfo", "-V"]).stdout


def test_a_run_from_plan_to_results(laptop: Laptop) -> None:
    user = laptop.user
    starts = json.loads(user.types("plan", "--json"))["starts"]
    assert any(start["wait_seconds"] is not None for start in starts), starts
    run_id = user.submits("--", "hello")
    assert laptop.ends(run_id)["state"] == "COMPLETED"
    assert "says hello" in user.types("logs", run_id)
    user.types("sync-results", "--no-wandb", run_id)
    assert "says hello" in (user.folder / "results" / run_id / "attempts/0/log").read_text()


def test_a_group_and_the_first_of_two_requests(laptop: Laptop) -> None:
    user = laptop.user
    group = user.submits("--seeds", "1,2", "--", "{seed}")
    first = user.submits("--first", "gpu:a40,a100", "--", "either")
    for run_id in (f"{group}-0", f"{group}-1", first):
        assert laptop.ends(run_id)["state"] == "COMPLETED"
    assert "says 2" in user.types("logs", f"{group}-1")


def test_a_run_goes_on_past_its_signal(laptop: Laptop) -> None:
    user = laptop.user
    run_id = user.submits("--until-done", "--", "goes-on")
    until(lambda: (user.root / "runs" / run_id / "waits").exists())
    job = str(user.status(run_id)[run_id]["job_id"])
    user.cluster.run("login", ["scancel", "--batch", "--signal=USR1", job], user="alice")
    run = laptop.ends(run_id)
    assert (run["state"], run["attempt"], run["job_id"]) == ("COMPLETED", 1, job)


def test_an_expedited_requeue_where_slurm_knows_it(laptop: Laptop) -> None:
    """Since 25.11, and where the site has set it up; clusterkit adds no option of its own to it."""
    user = laptop.user
    done = user.tries("submit", "--until-done", "--sbatch", "requeue=expedite", "--", "hello")
    if laptop.version == "22.05":
        assert done.returncode == 5
        assert "needs Slurm 25.11" in done.stderr, done.stderr
        return
    run_id = done.stdout.strip()
    assert laptop.ends(run_id)["state"] == "COMPLETED", done.stderr
    request = user.root / "runs" / run_id / "submissions/0/request.json"
    options = json.loads(request.read_text())["options"]
    assert [option for option in options if "requeue" in option] == ["--requeue=expedite"]


def test_gpus_asked_for_in_another_way(laptop: Laptop) -> None:
    """26.05 refuses a request that asks for them in two ways."""
    run_id = laptop.user.submits("--sbatch", "gpus-per-node=a40:1", "--", "hello")
    assert laptop.ends(run_id)["state"] == "COMPLETED"


def test_why_it_failed_was_cancelled_or_had_too_little_memory(laptop: Laptop) -> None:
    user = laptop.user
    sleeps, fails = user.submits("--", "sleeps"), user.submits("--", "fails")
    grows = user.submits("--profile", "grows", "--", "eats")
    assert laptop.ends(fails)["state"] == "FAILED"
    assert "this is wrong" in user.types("why", fails)
    until(lambda: user.status(sleeps)[sleeps]["state"] == "RUNNING")
    user.types("cancel", sleeps, "--yes")
    assert laptop.ends(sleeps)["state"] == "CANCELLED"
    run = laptop.ends(grows)
    assert (run["state"], run["submission"]) == ("COMPLETED", 1), user.types("why", grows)


def test_why_it_waits(laptop: Laptop) -> None:
    user = laptop.user
    holder = user.submits("--sbatch", "exclusive", "--", "sleeps")
    until(lambda: user.status(holder)[holder]["state"] == "RUNNING")
    waits = user.submits("--", "hello")
    until(lambda: json.loads(user.types("why", waits, "--json"))["cause"] == "waiting")
    user.types("cancel", holder, "--yes")
    assert laptop.ends(waits)["state"] == "COMPLETED"


def test_init_and_doctor_read_its_words(laptop: Laptop) -> None:
    user = laptop.user
    words = ("init", "login", "--ssh-config", str(user.cluster.ssh_config), "--yes", "--container", "none")
    found = json.loads(user.types(*words, "--dry-run", "--json", "--config", "new.toml"))["diff"]
    text = "\n".join(found)
    assert "a40" in text
    assert "gpu-a100" in text
    done = user.tries("doctor", "--no-job", "--json")
    checks = {check["name"]: check["outcome"] for check in json.loads(done.stdout)["checks"]}
    assert (checks["slurm-tools"], checks["submit"]) == ("pass", "pass"), done.stdout
