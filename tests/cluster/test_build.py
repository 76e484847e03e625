"""`clusterkit build --cluster NAME`: a Slurm job builds with a real Apptainer, as an ordinary user."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from clusterkit.images.chunks import chunk_file
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.rootfs import rootfs
from tests.images.building.archives import docker_archive

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


def test_a_definition_is_built_in_a_job_and_becomes_the_projects_image(builder: User) -> None:
    define(builder)
    with builder.logging_in(times=1):
        done = builder.tries(
            "build", "--cluster", "site", "--definition", "my.def", "--sbatch", "partition=gpu-a100"
        )
    assert done.returncode == 0, done.stderr
    assert "building on a100n1" in done.stderr
    assert "post runs on tiny" in done.stderr
    ((digest, path),) = stored(builder).items()
    assert path.with_suffix(".chunks").read_bytes() == chunk_file(path).encode()
    assert json.loads((builder.folder / ".clusterkit" / "build.json").read_text())["digest"] == digest
    assert digest in builder.types("submit", "--script")
    assert left(builder) == []
    run = ["apptainer", "-q", "exec", str(path).replace(str(builder.cluster.share), "/share")]
    inside = builder.cluster.run("a40n1", [*run, "sh", "-c", 'echo "$GREETING"'], user=builder.cluster.user)
    assert inside.stdout == "hello from Docker\n"


def test_a_base_that_is_in_the_store_does_not_travel(builder: User) -> None:
    if not stored(builder):  # the test above may have another day
        define(builder)
        builder.types("build", "--cluster", "site", "--definition", "my.def")
    base = next(iter(stored(builder).values()))
    shutil.copyfile(base, builder.folder / "base.sif")
    define(builder, bootstrap="localimage", base="base.sif", sleep=1)
    before = builder.cluster.sent_bytes()
    builder.types("build", "--cluster", "site", "--definition", "my.def")
    assert builder.cluster.sent_bytes() - before < base.stat().st_size / 4


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
