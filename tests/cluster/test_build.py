"""`clusterkit build --cluster NAME`: a Slurm job builds with a real Apptainer, as an ordinary user."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest

from clusterkit.images.chunks import chunk_file
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.rootfs import rootfs
from tests.images.building.archives import docker_archive
from tests.waiting import until

DEFINITION = """\
Bootstrap: {bootstrap}
From: {base}

%files
    packages.txt /opt/trainer/packages.txt

%post
    echo "post runs on $(cat /etc/name)"
    sleep {sleep}

%test
    test "$GREETING" = "hello from Docker"
"""


@pytest.fixture(scope="module")
def builder(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody with a Docker archive and a definition on top of it, and no Apptainer on the laptop."""
    user = User.settle(tmp_path_factory.mktemp("builder"), cluster, Path("/nowhere.sif"))
    files = {"/etc/name": "tiny", "/opt/trainer/packages.txt": "torch==1.0\n"}
    docker_archive(user.folder / "tiny.tar", rootfs(), files)
    return user


def define(user: User, *, bootstrap: str = "docker-archive", base: str = "tiny.tar", sleep: int = 0) -> None:
    (user.folder / "my.def").write_text(DEFINITION.format(bootstrap=bootstrap, base=base, sleep=sleep))
    (user.folder / "packages.txt").write_text("torch==2.0\n")


def stored(user: User) -> dict[str, Path]:
    """The images of the cluster's store by digest, each checked."""
    found = {}
    for path in (user.root / "images").glob("*.sif"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert path.name == f"sha256-{digest}.sif"
        found[digest] = path
    return found


def left(user: User) -> list[str]:
    """What builds have left behind below the work root and on the nodes' scratch."""
    return [str(path) for name in ("builds", "scratch") for path in (user.root / name).iterdir()]


def test_a_docker_archive_is_converted_in_a_job(builder: User) -> None:
    with builder.logging_in(times=1):
        said = builder.types("build", "--cluster", "site", "--from", "docker-archive:tiny.tar")
    ((digest, path),) = stored(builder).items()
    assert digest in said
    assert "1 package\n" in said
    assert path.with_suffix(".chunks").read_bytes() == chunk_file(path).encode()
    assert left(builder) == []
    run = ["apptainer", "-q", "exec", str(path).replace(str(builder.cluster.share), "/share")]
    inside = builder.cluster.run("a40n1", [*run, "sh", "-c", 'echo "$GREETING"'], user=builder.cluster.user)
    assert inside.stdout == "hello from Docker\n"
    assert digest in builder.types("submit", "--script")


def test_a_definition_is_built_and_becomes_the_projects_image(builder: User) -> None:
    define(builder)
    done = builder.tries(
        "build", "--cluster", "site", "--definition", "my.def", "--sbatch", "partition=gpu-a100"
    )
    assert done.returncode == 0, done.stderr
    assert "building on a100n1" in done.stderr
    assert "post runs on tiny" in done.stderr
    assert "~ torch 1.0 -> 2.0" in done.stdout
    digest = json.loads((builder.folder / ".clusterkit" / "build.json").read_text())["digest"]
    assert digest in stored(builder)
    assert digest in builder.types("submit", "--script")
    assert left(builder) == []


def test_a_base_that_is_in_the_store_does_not_travel(builder: User) -> None:
    base = next(iter(stored(builder).values()))
    shutil.copyfile(base, builder.folder / "base.sif")
    define(builder, bootstrap="localimage", base="base.sif", sleep=1)
    before = builder.cluster.sent_bytes()
    builder.types("build", "--cluster", "site", "--definition", "my.def")
    assert builder.cluster.sent_bytes() - before < base.stat().st_size / 4


def test_a_failed_build_says_why(builder: User) -> None:
    images = set(stored(builder))
    define(builder)
    with (builder.folder / "my.def").open("a") as definition:
        definition.write("    echo 'chown: /x: Invalid argument' >&2; exit 3\n")
    done = builder.tries("build", "--cluster", "site", "--definition", "my.def")
    assert done.returncode == 6
    assert "the build failed: chown: /x: Invalid argument" in done.stderr
    assert "/etc/subuid" in done.stderr
    assert set(stored(builder)) == images


def test_without_subordinate_ids_it_says_who_can_help(builder: User) -> None:
    """Without them everything in the build belongs to root, and to become somebody else fails."""
    cluster = builder.cluster
    ids = ["/etc/subuid", "/etc/subgid"]
    define(builder)
    build = ["build", "--cluster", "site", "--definition", "my.def", "--sbatch", "partition=gpu-a40"]
    with (builder.folder / "my.def").open("a") as definition:
        definition.write("%post\n    chown 50:50 /etc/name\n")
    for path in ids:
        cluster.run("a40n1", ["sh", "-c", 'cp -p "$1" "$1.kept" && : >"$1"', "sh", path])
    try:
        done = builder.tries(*build)
    finally:
        for path in ids:
            cluster.run("a40n1", ["mv", f"{path}.kept", path])
    assert done.returncode == 6
    assert "Invalid argument" in done.stderr
    assert "ask for entries in /etc/subuid" in done.stderr
    builder.types(*build)


def test_a_full_scratch_disk_is_said_in_words(builder: User) -> None:
    define(builder)
    scratch = f"/share/alice/{builder.root.name}/scratch"
    builder.cluster.run("a40n1", ["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "small", scratch])
    try:
        done = builder.tries(
            "build", "--cluster", "site", "--definition", "my.def", "--sbatch", "partition=gpu-a40"
        )
    finally:
        builder.cluster.run("a40n1", ["umount", scratch])
    assert done.returncode == 6
    assert "no space left" in done.stderr.lower()
    assert "`scratch` of the cluster" in done.stderr


def test_no_internet_is_said_in_words(builder: User) -> None:
    done = builder.tries("build", "--cluster", "site", "--from", "docker://python:3.12-slim-bookworm")
    assert done.returncode == 6
    assert "cannot reach the internet" in done.stderr


def test_an_interrupted_build_is_cancelled_and_leaves_no_image(builder: User) -> None:
    images = set(stored(builder))
    define(builder, sleep=300)
    process = builder.starts("build", "--cluster", "site", "--definition", "my.def")
    assert process.stderr
    assert any("post runs" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    until(lambda: not builder.cluster.run("login", ["squeue", "-h"]).stdout.strip())
    assert set(stored(builder)) == images


@pytest.mark.slow
def test_a_job_that_dies_is_noticed(builder: User) -> None:
    define(builder, sleep=301)
    process = builder.starts("build", "--cluster", "site", "--definition", "my.def")
    assert process.stderr
    assert any("post runs" in line for line in process.stderr)
    builder.cluster.run("login", ["scancel", "--signal=KILL", "--full", "-u", builder.cluster.user])
    _, said = process.communicate(timeout=240)
    assert process.returncode == 6
    assert "ended without a result" in said
