"""status on a real Slurm while its services come and go, and from a laptop that knows nothing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.trouble import queue
from tests.waiting import until

SETTINGS = """
[profiles.tiny]
program = ["python3", "train.py"]
gpu = "a40"
memory = "300M"
time = "1h"
"""

PROGRAM = """
import json, os, pathlib, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
what = sys.argv[1]
if what == "fails":
    sys.exit(3)
if what == "swells":
    swollen = bytearray(os.urandom(1)) * 2**30
step = 0
while what in ("goes-on", "waits"):
    step += 100
    beat = {"schema": 1, "time": time.time(), "attempt": 0, "step": step, "total_steps": 1_000_000,
            "steps_per_second": 100.0, "success": 0.5, "gpu": {"utilization": 0.5}}
    (run / ".beat").write_text(json.dumps(beat))
    (run / ".beat").rename(run / "heartbeat.json")
    time.sleep(1)
"""

KINDS = {
    "goes-on": "RUNNING",
    "waits": "PENDING",
    "ends": "COMPLETED",
    "fails": "FAILED",
    "swells": "OUT_OF_MEMORY",
    "is-cancelled": "CANCELLED",
}
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Has submitted one run of each kind and has seen where they stand."""
    user = User.bare(tmp_path_factory.mktemp("laptop"), cluster, SETTINGS, {"train.py": PROGRAM})
    ids = {}
    for kind in KINDS:
        later = ["--sbatch", "begin=now+1hour"] if kind == "waits" else []
        program = "goes-on" if kind == "is-cancelled" else kind
        ids[kind] = user.submits("--name", kind, *later, "--", program)
    deadline = time.monotonic() + PATIENCE_SECONDS
    until(lambda: queue(cluster)[ids["is-cancelled"]][1] == "RUNNING")
    user.types("cancel", ids["is-cancelled"])
    beats = user.root / "runs" / ids["goes-on"] / "heartbeat.json"
    while user.active() & {*ids.values()} != {ids["goes-on"], ids["waits"]} or not beats.exists():
        assert time.monotonic() < deadline, queue(cluster)
        time.sleep(0.2)
    while states(user) != KINDS:
        assert time.monotonic() < deadline, look(user)
        time.sleep(0.5)
    yield user
    user.types("cancel", ids["goes-on"], ids["waits"])


def look(user: User) -> dict[str, Any]:
    """What `status --json` says of each kind, and of the cluster."""
    return look_together(user)[0]


def look_together(*users: User) -> list[dict[str, Any]]:
    """The same of several laptops at once: where something is down, each waits a while."""
    with ThreadPoolExecutor() as threads:
        printed = [*threads.map(lambda user: user.types("status", "--all", "--json"), users)]
    documents = [json.loads(text) for text in printed]
    return [{run["name"]: run for run in document["runs"]} | {"": document} for document in documents]


def states(user: User) -> dict[str, str]:
    return {kind: run["state"] for kind, run in look(user).items() if kind}


def another_laptop(user: User, home: Path) -> User:
    """With the project, and an empty ledger."""
    folder = home / "project"
    shutil.copytree(user.folder, folder, ignore=shutil.ignore_patterns(".clusterkit"))
    return User(folder, user.cluster)


@contextmanager
def without(cluster: Cluster, *services: str) -> Iterator[None]:
    """The services of the controller's node are stopped, and start again afterwards."""
    for name in services:
        stop = f"pid=$(pidof {name}) && kill $pid && while kill -0 $pid 2>/dev/null; do sleep 0.1; done"
        cluster.run("ctl", ["sh", "-c", stop])
    with cluster.impatient():
        yield
    for name in reversed(services):
        daemon = f"setpriv --reuid slurm --regid slurm --clear-groups {name} -D"
        cluster.run("ctl", ["sh", "-c", f"setsid {daemon} </dev/null >>/testbed/{name}.log 2>&1 &"])
    until(
        lambda: not any(cluster.run("login", argv, check=False).returncode for argv in (["sinfo"], ["sacct"]))
    )


def same(one: dict[str, Any], other: dict[str, Any], *kinds: str) -> None:
    """Assert that two looks agree on state, reason and place of runs."""
    for kind in kinds:
        for field in ("run_id", "state", "why", "node", "job_id", "attempt", "submitted", "limit_seconds"):
            assert other[kind][field] == one[kind][field], (kind, field)


def test_with_everything_up(laptop: User) -> None:
    seen = look(laptop)
    running = seen["goes-on"]
    assert 0 < running["progress"] < 1
    assert running["outlook"].startswith("will not finish: stops at")
    assert (running["gpu"], running["node"], running["limit_seconds"]) == (0.5, "a40n1", 3600)
    assert running["elapsed_seconds"] < 1800
    assert running["heartbeat_age"] < 60
    assert seen["waits"]["expected_start"] - time.time() == pytest.approx(3600, abs=1000)
    assert "earliest start" in seen["waits"]["why"]
    assert "exit code 3" in seen["fails"]["why"]


def test_another_laptop_finds_everything(laptop: User, tmp_path: Path) -> None:
    second = another_laptop(laptop, tmp_path)
    with laptop.logging_in(times=1):
        found = second.tries("status")
    assert f"found {len(KINDS)} runs on site" in found.stderr
    seen = look(second)
    same(look(laptop), seen, *KINDS)
    assert second.types("logs", seen["fails"]["run_id"])


def test_controller_and_slurmdbd_are_down(laptop: User, tmp_path: Path) -> None:
    before = look(laptop)
    with without(laptop.cluster, "slurmctld", "slurmdbd"):
        down, fresh = look_together(laptop, another_laptop(laptop, tmp_path))
    assert {kind: run["state"] for kind, run in down.items() if kind} == KINDS
    assert down["goes-on"]["why"].startswith("according to its heartbeat; squeue failed")
    assert down["waits"]["why"].startswith("last known")
    same(before, fresh, "ends", "fails", "is-cancelled")
    assert fresh["goes-on"]["state"] == "RUNNING"
    assert fresh["waits"]["state"] in ("PENDING", "UNKNOWN")
    # Memory as the cause is what only Slurm knows.
    assert (fresh["swells"]["state"], fresh["swells"]["final"]) == ("FAILED", False)
