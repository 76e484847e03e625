"""`[retry]` on a real Slurm: more memory after a kill by the kernel, another node after one is lost, nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User

pytestmark = pytest.mark.timeout(600)

SETTINGS = """
[project]
name = "healing"
default_cluster = "site"
default_profile = "small"
program = ["python3", "train.py"]

[clusters.site]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
container = "none"

[profiles.small]
memory = "60M"
time = "10m"

[profiles.small.retry]
memory_up_to = "120M"
node_failures = 1

[profiles.small.sbatch]
partition = "gpu-a40,gpu-a100"

[profiles.plain]
memory = "60M"
time = "10m"

[profiles.plain.sbatch]
partition = "gpu-a40"

[profiles.chained]
extends = "small"
until_done = true
"""

PROGRAM = """
import os, pathlib, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
checkpoints = run / "checkpoints"
what, found = sys.argv[1], sorted(checkpoints.glob("step-*"))
(checkpoints / f"step-{len(found) + 1}").mkdir(parents=True)
print("from", found[-1].name if found else "nothing", flush=True)
if what.isdigit():
    filled = bytearray(os.urandom(1)) * (int(what) << 20)
if what == "fails":
    sys.exit(1)
if what == "cuda":
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.")
while what == "goes-on" and not (run / "enough").exists():
    time.sleep(0.2)
"""
ENDED = {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED"}


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A person whose project asks for retries."""
    home = tmp_path_factory.mktemp("healing")
    folder = home / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "clusterkit.toml").write_text(SETTINGS.format(ssh_config=cluster.ssh_config, root=home.name))
    return User(folder, cluster)


@pytest.fixture(scope="module")
def ended(laptop: User) -> dict[str, dict[str, Any]]:
    """How runs of each kind end, by kind."""
    ids = {
        "grows": laptop.submits("--name", "grows", "--", "80"),
        "too-large": laptop.submits("--name", "too-large", "--", "300"),
        "fails": laptop.submits("--name", "fails", "--", "fails"),
        "cuda": laptop.submits("--name", "cuda", "--", "cuda"),
        "plain": laptop.submits("--name", "plain", "--profile", "plain", "--", "80"),
        "by-requeue": laptop.submits("--name", "by-requeue", "--profile", "chained", "--", "80"),
    }
    for way in ("array", "chain"):
        options = ("--set-config", f"clusters.site.continue_by={way}")
        del options
    until("the end of all", lambda: all(state["state"] in ENDED for state in states(laptop).values()))
    found = states(laptop)
    return {kind: found[identity] for kind, identity in ids.items()}


def states(user: User) -> dict[str, dict[str, Any]]:
    return user.status()


def until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def why(user: User, run_id: str) -> dict[str, Any]:
    return dict(json.loads(user.types("why", "--json", run_id)))


def logs(user: User, run_id: str) -> list[str]:
    attempts = user.root / "runs" / run_id / "attempts"
    return [(attempts / f"{number}/log").read_text() for number in range(len(list(attempts.iterdir())))]
