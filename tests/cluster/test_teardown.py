"""A cluster leaves nothing behind, however the process that started it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.waiting import until

ROOT = Path(__file__).parents[2]
CHILD = """
import signal, sys
from tests.cluster.cluster import Cluster
with Cluster() as cluster, cluster.disk("login", "small", "10m"):
    cluster.run("login", ["sbatch", "-o", "/dev/null", "--wrap", "sleep 300"], user="alice")
    print(cluster.name, cluster.site.state, flush=True)
    sys.stdin.read()
"""


def remains(name: str, state: Path) -> list[str]:
    """All that is still there of a cluster: links, control groups, files, and processes."""
    found = [str(link) for link in Path("/sys/class/net").glob(f"{name}*")]
    found += [str(group) for group in Path("/sys/fs/cgroup").glob(f"*/{name}")]
    found += [str(state)] if state.exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            belongs = str(state) in (process / "mountinfo").read_text()
            if belongs or f"TESTBED_UPLINK={name}" in (process / "environ").read_text(errors="replace"):
                found.append(str(process))
        except OSError:
            continue  # it has just ended
    return found


def test_a_killed_cluster_leaves_nothing(cluster: Cluster) -> None:
    """Also shows that two clusters can run side by side: the session's own one is up meanwhile."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    )
    assert child.stdout
    name, state = child.stdout.readline().split()
    assert len(remains(name, Path(state))) > 20
    child.kill()
    child.wait(120)
    until(lambda: not remains(name, Path(state)))
    assert cluster.run("login", ["sinfo"]).returncode == 0
