"""Snapshots on a cluster: sent once, shared, never changed, and only whole ones have a name."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Snapshot, look, take
from clusterkit.snapshots import publish as publish_standing
from clusterkit.transport.base import SyncOptions, Transferred
from tests.images.uploads import age
from tests.snapshots.conftest import taken


def publish(site: Site, snapshot: Snapshot, basis: str | None = None) -> bool:
    standing = look(site, snapshot, basis=basis)
    publish_standing(site, standing)
    return not standing.present


def test_publish_once_and_edits_do_not_reach_it(project: Path, site: Site) -> None:
    snapshot = taken(project)
    assert publish(site, snapshot)
    assert not publish(site, snapshot)
    (project / "pkg" / "a.py").write_text("a = 3\n")
    folder = Path(snapshot.path(site.layout.snapshots))
    assert (folder / "project/pkg/a.py").read_text() == "a = 1\n"
    assert (folder / "project/link").readlink() == Path("pkg/a.py")
    assert (folder / "project/train me.sh").stat().st_mode & 0o777 == 0o500
    bundle = Path(site.layout.snapshots, snapshot.bundle.id, "bundle")
    assert (bundle / "trainer/__init__.py").is_file()
    there = {path.name for path in Path(site.layout.snapshots).iterdir()}
    assert there == {snapshot.id, snapshot.bundle.id}


def test_the_trainer_is_sent_only_for_a_program_that_uses_it(project: Path, site: Site) -> None:
    plain, whole = (take(project, exclude=(), max_file_size=10_000, trainer=uses) for uses in (False, True))
    assert publish(site, plain)
    assert not publish(site, plain)
    assert [path.name for path in Path(site.layout.snapshots).iterdir()] == [whole.id]
    standing = look(site, whole)
    assert {name.partition("/")[0] for name in standing.missing} == {"bundle"}
    assert standing.bytes_to_send == whole.bytes - plain.bytes
    assert publish(site, whole)
    assert look(site, whole, use=True).present


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
    (project / "pkg" / "a.py").unlink()
    with pytest.raises(ClusterkitError):
        publish(site, snapshot)
    assert not Path(snapshot.path(site.layout.snapshots)).exists()
    (project / "pkg" / "a.py").write_text("a = 1\n")
    assert publish(site, taken(project))


def test_the_manifest_there_proves_the_name(project: Path, site: Site) -> None:
    snapshot = taken(project)
    publish(site, snapshot)
    manifest = f"{snapshot.path(site.layout.snapshots)}/manifest.gz"
    digest = site.transport.run(["sh", "-c", 'zcat "$1" | sha256sum', "sh", manifest]).text
    assert digest.startswith(snapshot.id)
    assert stat.S_IMODE(Path(manifest).stat().st_mode) == 0o400


def test_nobody_can_write_into_what_is_published(project: Path, site: Site) -> None:
    snapshot = taken(project)
    for _ in range(2):
        publish(site, snapshot)
        folder = Path(snapshot.path(site.layout.snapshots))
        for path in (folder, *folder.rglob("*")):
            assert path.is_symlink() or not path.stat().st_mode & 0o222, path


def test_looking_counts_what_would_be_sent(project: Path, site: Site) -> None:
    first = taken(project)
    standing = look(site, first)
    assert standing.bytes_to_send == first.bytes
    publish(site, first)
    assert look(site, first).bytes_to_send == 0
    (project / "pkg" / "a.py").write_text("a = 1234\n")
    (project / "copy.py").write_text("echo\n")
    standing = look(site, taken(project))
    assert standing.basis == first.id
    assert set(standing.missing) == {"project/pkg/a.py", "project/copy.py"}
    assert standing.bytes_to_send == 9 + 5


def test_a_damaged_manifest_only_makes_the_plan_larger(project: Path, site: Site) -> None:
    first = taken(project)
    publish(site, first)
    path = Path(first.path(site.layout.snapshots)) / "manifest.gz"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])
    (project / "new.py").write_text("n")
    second = taken(project)
    assert set(look(site, second).missing) == {f"project/{name}" for name in second.project.files}
    assert publish(site, second)


@pytest.mark.slow
def test_another_projects_snapshot_in_between_costs_nothing(
    project: Path, site: Site, tmp_path: Path
) -> None:
    first = taken(project)
    publish(site, first)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.py").write_text("x")
    publish(site, taken(other))
    (project / "new.py").write_text("n")
    second = taken(project)
    assert list(look(site, second, basis=first.id).missing) == ["project/new.py"]
    assert publish(site, second, basis=first.id)
    one, two = (Path(s.path(site.layout.snapshots)) for s in (first, second))
    assert (one / "project/pkg/a.py").samefile(two / "project/pkg/a.py")
    assert look(site, taken(project), basis="gone").present


def test_stale_partial_folders_are_removed_fresh_ones_are_not(project: Path, site: Site) -> None:
    snapshots = Path(site.layout.snapshots)
    for name, seconds in ((".a.1.part", 2 * 86400), (".b.2.part", 60)):
        (snapshots / name / "project").mkdir(parents=True)
        then = (snapshots / name).stat().st_mtime - seconds
        os.utime(snapshots / name, (then, then))
    look(site, taken(project))
    assert len(list(snapshots.iterdir())) == 2
    look(site, taken(project), use=True)
    assert [path.name for path in snapshots.iterdir()] == [".b.2.part"]


def test_a_file_that_changes_while_it_is_sent_is_not_published(project: Path, site: Site) -> None:
    standing = look(site, taken(project))
    (project / "pkg" / "a.py").write_text("a = 7\n")
    with pytest.raises(ClusterkitError, match=r"pkg/a\.py: was changed while"):
        publish_standing(site, standing)
    assert not list(Path(site.layout.snapshots).iterdir())


def test_a_group_may_read_when_the_cluster_says_so(project: Path, tmp_path: Path) -> None:
    import grp

    group = grp.getgrgid(os.getgid()).gr_name
    cluster = Cluster(name="local", kind="local", root=f"{tmp_path}/root", container="none", group=group)
    with open_site(cluster) as site:
        snapshot = taken(project)
        publish(site, snapshot)
        folder = Path(snapshot.path(site.layout.snapshots))
        found = {
            path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*") if not path.is_symlink()
        }
        assert found[folder / "project/pkg/a.py"] == 0o440
        assert found[folder / "project/train me.sh"] == 0o550
        assert all(mode & 0o057 == 0o050 for path, mode in found.items() if path.is_dir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o2550
        assert stat.S_IMODE(Path(site.layout.runs).stat().st_mode) == 0o700


def test_what_has_arrived_is_not_sent_again(project: Path, site: Site) -> None:
    (project / "done").write_bytes(os.urandom(1_000))
    (project / "half").write_bytes(os.urandom(5_000))
    snapshot = taken(project)
    snapshots = Path(site.layout.snapshots)
    begun = snapshots / f".{snapshot.id}.0123abcd.part/project"
    begun.mkdir(parents=True)
    shutil.copy2(project / "done", begun)
    (begun / "done").chmod(0o400)
    (begun / "half").write_bytes((project / "half").read_bytes()[:3_000])
    (begun / ".half.XyZ123").write_bytes(b"what a killed program leaves")
    publish(site, taken(project, "*"))  # the bundle
    standing = look(site, snapshot)
    assert standing.begun == (begun.parent.name,)
    small = sum((project / name).lstat().st_size for name in ("pkg/a.py", "train me.sh", "link"))
    assert standing.bytes_to_send == small + 2_000 - len("what a killed program leaves")
    assert publish_standing(site, standing).bytes <= small + 5_000
    folder = Path(snapshot.path(site.layout.snapshots))
    assert (folder / "project/done").samefile(begun / "done")
    assert (folder / "project/half").read_bytes() == (project / "half").read_bytes()
    assert not (folder / "project/.half.XyZ123").exists()
    look(site, snapshot, use=True)
    assert begun.exists(), "somebody may still be writing there"
    age(begun.parent, 120)
    look(site, snapshot, use=True)
    assert not begun.parent.exists()


def test_another_upload_of_the_same_snapshot_may_end_meanwhile(
    project: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partial folder, whose files this one shares, gets its final name: rsync then misses files."""
    snapshot = taken(project)
    running = Path(site.layout.snapshots) / f".{snapshot.id}.0123abcd.part"
    (running / "project").mkdir(parents=True)
    standing = look(site, snapshot)
    assert standing.begun == (running.name,)
    push, shared = site.transport.push, []

    def pushed(source: Path, target: str, *, options: SyncOptions, **how: Any) -> Transferred:
        shared.append([name for name in options.link_dest if running.name in name])
        if shared[-1]:
            shutil.rmtree(running, ignore_errors=True)
            raise TransportError("copying failed (rsync 23): file has vanished")
        return push(source, target, options=options, **how)

    monkeypatch.setattr(site.transport, "push", pushed)
    publish_standing(site, standing)
    assert look(site, snapshot).present
    assert shared[:2] == [[f"{running}/project"], []]


def test_a_failing_upload_is_not_repeated_without_reason(
    project: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def pushed(*_: object, **__: object) -> Transferred:
        calls.append(1)
        raise TransportError("the disk is full")

    monkeypatch.setattr(site.transport, "push", pushed)
    with pytest.raises(TransportError, match="full"):
        publish(site, taken(project))
    assert len(calls) == 1
