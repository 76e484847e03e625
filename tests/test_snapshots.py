"""Snapshots: what travels, what stays, and that a snapshot on a cluster never changes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ClusterkitError
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Snapshot, publish, take


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


def taken(project: Path, *exclude: str) -> Snapshot:
    return take(project, exclude=exclude, max_file_size=10_000)


def git(project: Path, *args: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@e"]
    subprocess.run(["git", "-C", project, *identity, *args], check=True, capture_output=True)


def test_uncommitted_and_untracked_files_travel_ignored_ones_stay(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.log\n")
    (project / "x.log").write_text("ignored")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    (project / "pkg" / "a.py").write_text("a = 2\n")
    (project / "new.py").write_text("new")
    snapshot = taken(project)
    assert set(snapshot.project.files) == {".gitignore", "link", "new.py", "pkg/a.py", "train me.sh"}
    assert snapshot.git.dirty
    assert "+a = 2" in snapshot.git.diff
    assert len(snapshot.git.commit or "") == 40


def test_what_never_travels_does_not_make_the_tree_dirty(project: Path) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", ".")
    git(project.parent, "commit", "-qm", "first")
    for folder in ("results", ".clusterkit"):
        (project / folder).mkdir()
        (project / folder / "x").write_text("x")
    assert not taken(project, "/results").git.dirty
    assert taken(project).git.dirty


def test_the_same_without_git(project: Path) -> None:
    snapshot = taken(project)
    assert set(snapshot.project.files) == {"link", "pkg/a.py", "train me.sh"}
    assert snapshot.git.commit is None


def test_excludes_match_names_folders_and_paths(project: Path) -> None:
    assert "pkg/a.py" not in taken(project, "pkg").project.files
    assert "pkg/a.py" not in taken(project, "pkg/").project.files
    assert "pkg/a.py" not in taken(project, "*.py").project.files
    assert "pkg/a.py" not in taken(project, "pkg/*.py").project.files


def test_secrets_never_travel(project: Path) -> None:
    for name in (".env", "id_ed25519", "server.pem", "pkg/.netrc"):
        (project / name).write_text("secret")
    snapshot = taken(project)
    assert set(snapshot.withheld) == {".env", "id_ed25519", "server.pem", "pkg/.netrc"}
    assert not set(snapshot.withheld) & set(snapshot.project.files)


def test_a_file_over_the_limit_is_refused(project: Path) -> None:
    (project / "data.bin").write_bytes(b"0" * 10_001)
    with pytest.raises(ClusterkitError, match="over the limit") as caught:
        taken(project)
    assert "exclude" in str(caught.value.hint)


def test_the_address_follows_content_names_modes_and_links_only(project: Path) -> None:
    first = taken(project).id
    os.utime(project / "pkg" / "a.py", (1, 1))
    assert taken(project).id == first
    (project / "train me.sh").chmod(0o644)
    assert taken(project).id != first
    (project / "train me.sh").chmod(0o755)
    (project / "link").unlink()
    (project / "link").symlink_to("elsewhere")
    assert taken(project).id != first


def test_the_bundled_trainer_comes_along(project: Path) -> None:
    files = taken(project).bundle.files
    assert "trainer/recipe.py" in files
    assert any(name.startswith("trainer/recipes/") for name in files)
    assert not any("__pycache__" in name for name in files)


def test_publish_once_and_edits_do_not_reach_it(project: Path, site: Site) -> None:
    snapshot = taken(project)
    assert publish(site, snapshot)
    assert not publish(site, snapshot)
    (project / "pkg" / "a.py").write_text("a = 3\n")
    folder = Path(snapshot.path(site.layout.snapshots))
    assert (folder / "project/pkg/a.py").read_text() == "a = 1\n"
    assert (folder / "project/link").readlink() == Path("pkg/a.py")
    assert (folder / "project/train me.sh").stat().st_mode & 0o777 == 0o500
    assert (folder / "bundle/trainer/__init__.py").is_file()
    assert [p.name for p in Path(site.layout.snapshots).iterdir()] == [snapshot.id]


def test_a_second_snapshot_shares_what_did_not_change(project: Path, site: Site) -> None:
    first = taken(project)
    publish(site, first)
    edited = project / "pkg" / "a.py"
    before = edited.stat()
    edited.write_text("a = 3\n")
    os.utime(
        edited, ns=(before.st_atime_ns, before.st_mtime_ns)
    )  # same size, same time: only the content tells
    second = taken(project)
    assert publish(site, second)
    one, two = (Path(s.path(site.layout.snapshots)) for s in (first, second))
    shared = "project/train me.sh"
    assert (one / shared).stat().st_ino == (two / shared).stat().st_ino
    assert (two / "project/pkg/a.py").read_text() == "a = 3\n"
    assert (one / "project/pkg/a.py").read_text() == "a = 1\n"


def test_an_interrupted_publish_leaves_nothing_under_the_name(project: Path, site: Site) -> None:
    snapshot = taken(project)
    broken = Snapshot(snapshot.id, snapshot.project, snapshot.bundle, 0)
    (project / "pkg" / "a.py").unlink()
    with pytest.raises(ClusterkitError):
        publish(site, broken)
    assert not Path(snapshot.path(site.layout.snapshots)).exists()
    (project / "pkg" / "a.py").write_text("a = 1\n")
    assert publish(site, snapshot)
