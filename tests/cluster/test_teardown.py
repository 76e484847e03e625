"""A cluster leaves nothing behind, however the process that started it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("orderly", marks=pytest.mark.exhaustive),
        pytest.param("interrupt", marks=pytest.mark.exhaustive),
        "kill",
    ],
)
def test_nothing_is_left(cluster: Cluster, ending: str) -> None:
    """Also shows that two clusters can run side by side: the session's own one is up meanwhile."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    name, state = child.stdout.readline().split()
    assert len(remains(name, Path(state))) > 20
    if ending == "orderly":
        child.stdin.close()
    else:
        child.send_signal({"interrupt": signal.SIGINT, "kill": signal.SIGKILL}[ending])
    child.wait(120)
    until(lambda: not remains(name, Path(state)))
    assert cluster.run("login", ["sinfo"]).returncode == 0


@pytest.mark.slow
def test_it_works_without_control_groups() -> None:
    """As on a machine whose control groups are all in the unified hierarchy."""
    with Cluster(control_groups=False) as cluster:
        submit = ["sbatch", "--wait", "-o", "/dev/null", "--gres=gpu:a40:1", "--wrap", "true"]
        assert cluster.run("login", submit, user=cluster.user).returncode == 0
        assert not list(Path("/sys/fs/cgroup").glob(f"*/{cluster.name}"))
    assert remains(cluster.name, cluster.site.state) == []
