"""Faults of the test cluster are real faults."""

from __future__ import annotations

import subprocess
import time

from tests.cluster.cluster import Cluster
from tests.waiting import until


def ssh(cluster: Cluster, *argv: str, connect_seconds: int = 60) -> subprocess.CompletedProcess[str]:
    options = ["-F", str(cluster.ssh_config), "-o", f"ConnectTimeout={connect_seconds}"]
    return subprocess.run(["ssh", *options, "login", *argv], capture_output=True, text=True, timeout=120)


def test_a_cut_cable_is_a_silent_host_until_it_heals(cluster: Cluster) -> None:
    before = cluster.logins()
    assert ssh(cluster, "true").returncode == 0
    assert cluster.logins() == before + 1
    cluster.cut("login")
    try:
        assert "timed out" in ssh(cluster, "true", connect_seconds=5).stderr
    finally:
        cluster.heal("login")
    until(lambda: ssh(cluster, "true", connect_seconds=5).returncode == 0)


def test_a_small_disk_outlives_its_node(cluster: Cluster) -> None:
    with cluster.disk("login", "small", "10m") as disk:
        cluster.run("login", ["cp", "/etc/hostname", "/share/small"], user="alice")
        cluster.kill_node("login")
        cluster.start_node("login")
        assert cluster.run("login", ["ls", "/share/small"]).stdout == "hostname\n"
        (disk / "ballast").write_bytes(bytes(9_000_000))
        fill = ["sh", "-c", "head -c 3000000 /dev/zero >/share/small/more"]
        full = cluster.run("login", fill, check=False)
        assert "No space left" in full.stderr
    assert not disk.exists()
    assert cluster.run("login", ["ls", "/share"]).returncode == 0


def test_a_limited_cable_is_slow(cluster: Cluster) -> None:
    send = ["head", "-c", "1000000", "/dev/zero"]
    cluster.rate("login", "4mbit")
    try:
        began = time.monotonic()
        assert len(ssh(cluster, *send).stdout) == 1_000_000
        assert time.monotonic() - began > 1.5  # two seconds by arithmetic, less what the buffer lets through
    finally:
        cluster.rate("login", None)
