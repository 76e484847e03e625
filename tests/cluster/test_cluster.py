"""The test cluster itself: it is a real one, and its faults are real faults."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.host import TestbedError
from tests.waiting import until


def ssh(cluster: Cluster, *argv: str, connect_seconds: int = 60) -> subprocess.CompletedProcess[str]:
    options = ["-F", str(cluster.ssh_config), "-o", f"ConnectTimeout={connect_seconds}"]
    return subprocess.run(["ssh", *options, "login", *argv], capture_output=True, text=True, timeout=120)


def batch(cluster: Cluster, *options: str) -> tuple[str, str]:
    """Submit a script on the login node and wait for its end; returns the job id and the final state."""
    argv = ["sbatch", "--parsable", "--output=/share/%j.out", *options]
    job = cluster.run("login", argv, user=cluster.user).stdout.strip()
    until(lambda: accounted(cluster, job, "State") not in ("", "PENDING", "RUNNING"))
    return job, accounted(cluster, job, "State")


def accounted(cluster: Cluster, job: str, field: str) -> str:
    argv = ["sacct", "-X", "-n", "-P", "-j", job, "-o", field]
    return cluster.run("login", argv, user=cluster.user).stdout.strip()


def test_both_partitions_are_idle(cluster: Cluster) -> None:
    def idle() -> bool:  # a moment after the last job of the file before
        listed = cluster.run("login", ["sinfo", "-h", "-o", "%R %t %G"], user=cluster.user).stdout
        return sorted(listed.splitlines()) == ["gpu-a100 idle gpu:a100:2", "gpu-a40 idle gpu:a40:4"]

    until(idle)


@pytest.mark.parametrize(("gpu", "count", "visible"), [("a40", 1, "0"), ("a100", 2, "0,1")])
def test_a_job_gets_its_gpus_and_completes(cluster: Cluster, gpu: str, count: int, visible: str) -> None:
    ask = [f"--partition=gpu-{gpu}", f"--gres=gpu:{gpu}:{count}"]
    job, state = batch(cluster, *ask, "--wrap", "echo $CUDA_VISIBLE_DEVICES")
    assert state == "COMPLETED"
    assert cluster.share.joinpath(f"{job}.out").read_text().strip() == visible
    assert f"gres/gpu:{gpu}={count}" in accounted(cluster, job, "AllocTRES")


def test_a_gpu_the_partition_lacks_is_refused(cluster: Cluster) -> None:
    with pytest.raises(TestbedError, match="Requested node configuration is not available"):
        batch(cluster, "--partition=gpu-a40", "--gres=gpu:a100:1", "--wrap", "true")


def test_a_job_over_its_memory_is_killed(cluster: Cluster) -> None:
    _, state = batch(cluster, "--mem=60M", "--wrap", "python3 -c 'bytearray(300_000_000)'")
    assert state == "OUT_OF_MEMORY"


def test_apptainer_runs_an_image_as_an_ordinary_user(cluster: Cluster) -> None:
    folder = cluster.share / "tiny"
    folder.mkdir()
    folder.chmod(0o777)
    folder.joinpath("tiny.def").write_text("Bootstrap: scratch\n%files\n  /usr/bin/tini-static /bin/tini\n")
    image = "/share/tiny/tiny.sif"
    cluster.run("login", ["apptainer", "-q", "build", image, "/share/tiny/tiny.def"], user="alice")
    done = cluster.run("a40n1", ["apptainer", "-q", "exec", image, "/bin/tini", "--version"], user="bob")
    assert "tini version" in done.stdout


def test_one_login_is_counted_once(cluster: Cluster) -> None:
    before = cluster.logins()
    done = ssh(cluster, "hostname")
    assert (done.stdout, done.stderr) == ("login\n", "")
    assert cluster.logins() == before + 1


def test_a_home_is_private_and_on_every_node(cluster: Cluster) -> None:
    cluster.run("login", ["sh", "-c", "echo mine > note"], user="alice")
    assert cluster.run("a100n1", ["cat", "note"], user="alice").stdout == "mine\n"
    assert cluster.run("login", ["cat", "/home/alice/note"], user="bob", check=False).returncode == 1


def test_rsync_moves_files_over_ssh(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"x" * 100_000)
    shell = f"ssh -F {cluster.ssh_config}"
    subprocess.run(["rsync", "-a", "-e", shell, f"{tmp_path}/", "login:moved/"], check=True, timeout=60)
    assert cluster.home.joinpath("moved/a b").stat().st_size == 100_000


def test_a_cut_cable_is_a_silent_host_until_it_heals(cluster: Cluster) -> None:
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


@pytest.mark.slow
def test_a_killed_node_is_seen_and_comes_back(cluster: Cluster) -> None:
    submit = [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "-p",
        "gpu-a100",
        "--output=/dev/null",
        "--wrap",
        "sleep 300",
    ]
    job = cluster.run("login", submit, user=cluster.user).stdout.strip()
    until(lambda: accounted(cluster, job, "State") == "RUNNING")
    cluster.kill_node("a100n1")
    until(lambda: accounted(cluster, job, "State") == "NODE_FAIL")
    cluster.start_node("a100n1")
    assert batch(cluster, "--partition=gpu-a100", "--wrap", "true")[1] == "COMPLETED"
