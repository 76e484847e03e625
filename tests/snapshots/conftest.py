"""A small project, and a local cluster for its snapshots."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Snapshot, take


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "a.py").write_text("a = 1\n")
    (root / "train me.sh").write_text("echo\n")
    (root / "train me.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/a.py")
    return root


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    cluster = Cluster(name="local", kind="local", root=f"{tmp_path}/root", container="none")
    with open_site(cluster) as opened:
        yield opened


def taken(project: Path, *exclude: str, include: tuple[str, ...] = ()) -> Snapshot:
    return take(project, exclude=exclude, include=include, max_file_size=10_000)


def git(project: Path, *args: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@e"]
    argv = ["git", "-C", project, *identity, *args]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def commit(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "-f", ".")
    git(project, "commit", "-qm", "first")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user may reach; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextlib.contextmanager
def as_nobody(project: Path) -> Iterator[None]:
    """Root may read everything, so somebody else looks at the project."""
    if os.getuid() != 0:
        yield
        return
    for path in [project, *project.rglob("*")]:
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
