"""Trees that break careless programs: they travel whole, or it is said why not."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.site import Site
from clusterkit.snapshots import look, publish, take
from tests.snapshots.conftest import as_nobody, commit, taken
from tests.transport.trees import ODD_NAMES, contents, tree

WITH_GIT = pytest.mark.parametrize("with_git", [False, True], ids=["no git", "git"])
NOT_UNICODE = os.fsdecode(b"caf\xe9")


@WITH_GIT
def test_odd_names_arrive(project: Path, site: Site, with_git: bool) -> None:
    odd = project / "new\nfolder"
    odd.mkdir()
    tree(odd)
    (odd / NOT_UNICODE).write_text("latin")
    (odd / " ").write_text("blank")
    if with_git:
        commit(project)
    snapshot = taken(project)
    assert {f"new\nfolder/{name}" for name in (*ODD_NAMES, NOT_UNICODE, " ")} <= set(snapshot.project.files)
    publish(site, look(site, snapshot))
    there = Path(snapshot.path(site.layout.snapshots)) / "project"
    assert contents(there) == {name: data for name, data in contents(project).items() if ".git/" not in name}


@WITH_GIT
def test_links_in_out_broken_and_in_circles_travel_as_links(
    project: Path, site: Site, tmp_path: Path, with_git: bool
) -> None:
    links = {
        "in": "pkg/a.py",
        "folder": "pkg",
        "pkg/up": "../train me.sh",
        "broken": "nowhere",
        "self": "self",
        "pkg/circle": "../pkg",
        "out": "../outside",
        "absolute": f"{tmp_path}/outside",
        "pkg/sly": "../../outside",
    }
    (tmp_path / "outside").write_text("not ours")
    for name, target in links.items():
        (project / name).unlink(missing_ok=True)
        (project / name).symlink_to(target)
    if with_git:
        commit(project)
    snapshot = taken(project)
    assert snapshot.outside == ("absolute", "out", "pkg/sly")
    publish(site, look(site, snapshot))
    there = Path(snapshot.path(site.layout.snapshots)) / "project"
    assert {name: str((there / name).readlink()) for name in links} == links


@WITH_GIT
def test_pipes_and_sockets_stay_and_are_named(project: Path, with_git: bool) -> None:
    if with_git:
        commit(project)
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(project / "socket"))
        snapshot = taken(project)
    assert not {"pipe", "socket"} & set(snapshot.project.files)
    assert with_git or snapshot.special == ("pipe", "socket")  # git itself never lists them


def test_a_sparse_file_is_refused_by_its_size_without_being_read(project: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.truncate(3 << 30)
    os.utime(project / "huge", (1, 1))
    with pytest.raises(ClusterkitError, match="3072 MiB is over the limit"):
        taken(project)
    assert (project / "huge").stat().st_atime == 1


@pytest.mark.needs("a checkout that others may read")
@WITH_GIT
def test_what_cannot_be_read_is_said(
    open_place: Path, monkeypatch: pytest.MonkeyPatch, with_git: bool
) -> None:
    monkeypatch.setenv("HOME", str(open_place))  # root's own git settings are not for everybody
    project = open_place / "project"
    (project / "locked").mkdir(parents=True)
    (project / "locked" / "x").write_text("x")
    (project / "a.py").write_text("a")
    if with_git:
        subprocess.run(["git", "-C", project, "init", "-q"], check=True)
    taken(project)
    (project / "locked").chmod(0)
    with as_nobody(project):
        with pytest.raises(ClusterkitError, match="locked: Permission denied") as caught:
            taken(project)
        assert "exclude" in str(caught.value.hint)
        assert taken(project, "/locked").project.files == ("a.py",)
        (project / "b.py").touch(mode=0)
        with pytest.raises(ClusterkitError, match=r"b\.py: cannot be read: Permission denied"):
            taken(project, "/locked")
        assert taken(project, "/locked", "b.py").project.files == ("a.py",)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_thousands_of_small_files(project: Path, site: Site, count: int) -> None:
    """Their names alone are more than a pipe takes at once, or an argument of a command."""

    def name(number: int) -> str:
        return f"d{number % 100}/{number:040}.txt"

    for number in range(count):
        path = project / name(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    snapshot = take(project, exclude=(), max_file_size=10_000)
    assert len(snapshot.project.files) == count + 3
    publish(site, look(site, snapshot))
    assert look(site, snapshot).present
    (project / name(1)).write_text("changed")
    standing = look(site, take(project, exclude=(), max_file_size=10_000))
    assert list(standing.missing) == [f"project/{name(1)}"]
    publish(site, standing)
    one, two = (Path(s.path(site.layout.snapshots)) / "project" for s in (snapshot, standing.snapshot))
    assert (one / name(2)).samefile(two / name(2))
    assert (two / name(1)).read_text() == "changed"
