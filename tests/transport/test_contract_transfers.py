"""What every transport promises about moving files (clusterkit/transport/base.py), asked of each of them.

Each is asked with rsync on both sides, without it on this one, and without it on the other one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.base import MissingFileError, SyncOptions, TransferProgress, Transferred, Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.local import LocalTransport
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.sampling import sampled
from tests.transport.trees import ODD_NAMES, contents, mode, tree


@pytest.fixture(scope="session")
@needing("sshd")
def poor_sshd(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Iterator[LoopbackSshd]:
    """A server whose sessions find no rsync."""
    with contextlib.closing(LoopbackSshd(tmp_path_factory.mktemp("poor") / "node")) as server:
        (server.home / ".bashrc").write_text(f"PATH={tools}\necho noise\n")
        yield server


@pytest.fixture(scope="session")
def poor_ssh(poor_sshd: LoopbackSshd) -> Iterator[Transport]:
    with contextlib.closing(connect(poor_sshd.alias, ssh_config=poor_sshd.ssh_config)) as transport:
        yield transport


ROADS = ["local", "ssh"]
POOR_ROADS = [pytest.param(road, marks=pytest.mark.slow) for road in ("local, none here", "ssh, none there")]
MORE_ROADS = sampled(["openssh", "ssh, none here", "openssh, none here"], 2, always=["openssh"])
"""The same rsync and the same copier over other channels: asked of what depends on a channel."""


@pytest.fixture(params=[*ROADS, *POOR_ROADS])
@needing("sshd", unless=lambda road: road.startswith("local"))
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Transport:
    kind, _, lack = request.param.partition(", ")
    if kind == "local":
        found = LocalTransport()
    else:
        found = request.getfixturevalue("poor_ssh" if lack == "none there" else kind)
    if lack == "none here":
        monkeypatch.setenv("PATH", str(request.getfixturevalue("tools")))
    return found


on_every_road = pytest.mark.parametrize("transport", [*ROADS, *POOR_ROADS, *MORE_ROADS], indirect=True)


@pytest.mark.slow
@on_every_road
def test_a_folder_goes_there_and_back(transport: Transport, here: Path, there: Path, tmp_path: Path) -> None:
    source = tree(here)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    sent = transport.push(source, str(there / "new" / "parents" / "target"))
    target = there / "new" / "parents" / "target"
    assert contents(target) == contents(source)
    assert sent.files == len(ODD_NAMES) + 1
    assert sent.bytes == size
    assert (target / "link").readlink() == Path("plain")
    assert mode(target / "sub dir" / "deeper" / "script") == 0o750
    assert mode(there / "new") == mode(there / "new" / "parents") == 0o700
    back = tmp_path / "back" / "again"
    assert transport.pull(str(target), back).files == len(ODD_NAMES) + 1
    assert contents(back) == contents(source)


def test_nothing_to_do_moves_nothing(transport: Transport, here: Path, there: Path) -> None:
    tree(here)
    transport.push(here, str(there / "target"))
    again = transport.push(here, str(there / "target"))
    assert (again.files, again.bytes) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sampled([name for name in ODD_NAMES if "*" not in name], 4, always=["-rf", "new\nline", "quote'\"`"]),
)
def test_a_single_file_goes_there_and_back(transport: Transport, here: Path, there: Path, name: str) -> None:
    (here / name).write_bytes(b"content")
    assert transport.push(here / name, str(there / "deep" / name)) == Transferred(1, 7)
    assert contents(there) == {f"deep/{name}": b"content"}
    assert transport.pull(str(there / "deep" / name), here / "back" / name) == Transferred(1, 7)
    assert (here / "back" / name).read_bytes() == b"content"


def test_a_single_file_that_is_a_link_means_its_target(transport: Transport, here: Path, there: Path) -> None:
    (here / "image.sif").write_bytes(b"image")
    (here / "current").symlink_to("image.sif")
    transport.push(here / "current", str(there / "image"))
    assert (there / "image").read_bytes() == b"image"
    (there / "current").symlink_to("image")
    transport.pull(str(there / "current"), here / "back")
    assert (here / "back").read_bytes() == b"image"
    assert not (there / "image").is_symlink()
    assert not (here / "back").is_symlink()


def test_names_with_wildcards_match_only_themselves(transport: Transport, here: Path, there: Path) -> None:
    for name in ("w[x]", "wx", "w*"):
        (there / name).mkdir()
        (there / name / "name").write_text(name)
    transport.pull(str(there / "w[x]"), here / "a")
    transport.pull(f"{there / 'w*'}/", here / "b")
    assert (contents(here / "a"), contents(here / "b")) == ({"name": b"w[x]"}, {"name": b"w*"})
    (here / "c").mkdir()
    (here / "c" / "name?").write_text("new")
    transport.push(here / "c", str(there / "w?" / "*"))
    assert contents(there / "w?") == {"*/name?": b"new"}
    assert contents(there / "wx") == {"name": b"wx"}


def test_a_single_file_with_a_wildcard_is_right_or_refused(
    transport: Transport, here: Path, there: Path
) -> None:
    """rsync's remote half would glob the name; nothing may be written under another one."""
    (here / "w?").write_text("new")
    (there / "wx").write_text("other")
    with contextlib.suppress(TransportError):
        transport.push(here / "w?", str(there / "w?"))
    assert contents(there) in ({"wx": b"other"}, {"wx": b"other", "w?": b"new"})


def test_nothing_is_deleted_unless_asked(transport: Transport, here: Path, there: Path) -> None:
    (here / "new").touch()
    (there / "old").touch()
    transport.push(here, str(there))
    assert set(contents(there)) == {"new", "old"}
    transport.push(here, str(there), options=SyncOptions(delete=True))
    assert set(contents(there)) == {"new"}


def test_exclude_and_files_from(transport: Transport, here: Path, there: Path) -> None:
    for name in ("keep.log", "drop.log", "a.txt", "sub/b.txt", "sub/#c", "sub/new\nline"):
        path = here / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    transport.push(here, str(there / "filtered"), options=SyncOptions(exclude=("/drop*", "/sub/")))
    assert set(contents(there / "filtered")) == {"keep.log", "a.txt"}
    some = SyncOptions(files_from=("sub/#c", "sub/new\nline", "a.txt"))
    transport.push(here, str(there / "some"), options=some)
    assert set(contents(there / "some")) == {"sub/#c", "sub/new\nline", "a.txt"}
    transport.pull(str(there / "some"), here / "back", options=SyncOptions(files_from=("sub/#c",)))
    assert set(contents(here / "back")) == {"sub/#c"}


def test_link_dest_shares_unchanged_files(transport: Transport, here: Path, there: Path) -> None:
    (here / "same").write_bytes(b"same")
    (here / "other").write_bytes(b"old")
    transport.push(here, str(there / "one"))
    (here / "other").write_bytes(b"newer")
    transport.push(here, str(there / "two"), options=SyncOptions(link_dest=(str(there / "one"),)))
    assert (there / "one" / "same").samefile(there / "two" / "same")
    assert (there / "one" / "other").read_bytes() == b"old"
    assert (there / "two" / "other").read_bytes() == b"newer"


@pytest.mark.parametrize("checksum", [False, True])
def test_link_dest_takes_each_file_from_the_first_folder_that_has_it(
    transport: Transport, here: Path, there: Path, checksum: bool
) -> None:
    for name in ("both", "begun", "first", "second"):
        (here / name).write_bytes(b"as it is")
    transport.push(here, str(there / "one"), options=SyncOptions(files_from=("both", "begun", "first")))
    transport.push(here, str(there / "two"), options=SyncOptions(files_from=("both", "begun", "second")))
    (there / "one" / "begun").write_bytes(b"as")
    (here / "new").write_bytes(b"only here")
    folders = (str(there / "one"), str(there / "two"))
    options = SyncOptions(link_dest=folders, inplace=True, checksum=checksum)
    assert transport.push(here, str(there / "three"), options=options) == Transferred(1, 9)
    assert contents(there / "three") == contents(here)
    shared = {"both": "one", "begun": "two", "first": "one", "second": "two"}
    for name, folder in shared.items():
        assert (there / folder / name).samefile(there / "three" / name)


def test_append_sends_only_the_tail(transport: Transport, here: Path, there: Path) -> None:
    log = there / "log"
    log.write_bytes(bytes(1_000_000))
    transport.pull(str(there), here, options=SyncOptions(append=True))
    with (here / "log").open("rb") as reader:
        with log.open("ab") as file:
            file.write(b"tail")
        moved = transport.pull(str(there), here, options=SyncOptions(append=True))
        assert moved.bytes == 4
        reader.seek(1_000_000)
        assert reader.read() == b"tail"  # same file: the open handle sees the new end


def test_append_notices_a_replaced_file(transport: Transport, here: Path, there: Path) -> None:
    (there / "log").write_bytes(b"old line\n")
    transport.pull(str(there), here, options=SyncOptions(append=True))
    (there / "log").write_bytes(b"another file, longer\n")
    transport.pull(str(there), here, options=SyncOptions(append=True))
    assert (here / "log").read_bytes() == b"another file, longer\n"


def test_mode_and_checksum(transport: Transport, here: Path, there: Path) -> None:
    (here / "file").write_bytes(b"aaaa")
    transport.push(here, str(there / "t"), options=SyncOptions(mode="D700,F600"))
    assert (mode(there / "t"), mode(there / "t" / "file")) == (0o700, 0o600)
    stamp = (here / "file").stat()
    (here / "file").write_bytes(b"bbbb")  # same size, and now the same time
    os.utime(here / "file", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    transport.push(here, str(there / "t"))
    assert (there / "t" / "file").read_bytes() == b"aaaa"
    transport.push(here, str(there / "t"), options=SyncOptions(checksum=True))
    assert (there / "t" / "file").read_bytes() == b"bbbb"


def test_links_out_of_the_tree_are_not_pulled(transport: Transport, here: Path, there: Path) -> None:
    (there / "tree").mkdir()
    (there / "tree" / "inside").touch()
    (there / "tree" / "good").symlink_to("inside")
    (there / "tree" / "evil").symlink_to("/etc/passwd")
    (there / "tree" / "sly").symlink_to("../../somewhere")
    transport.pull(str(there / "tree"), here / "tree")
    assert sorted(path.name for path in (here / "tree").iterdir()) == ["good", "inside"]


@pytest.mark.slow
@on_every_road
def test_progress_reaches_the_whole(transport: Transport, here: Path, there: Path) -> None:
    (here / "big").write_bytes(os.urandom(8_000_000))
    reports: list[TransferProgress] = []
    transport.push(here, str(there / "t"), progress=reports.append)
    assert reports[-1].done_bytes == 8_000_000
    assert reports[-1].total_bytes == 8_000_000
    assert all(report.bytes_per_second >= 0 for report in reports)


@pytest.mark.parametrize("path", ["absent", "absent/"])
def test_a_missing_source(transport: Transport, here: Path, there: Path, path: str) -> None:
    with pytest.raises(MissingFileError, match="does not exist on this machine"):
        transport.push(here / path, str(there))
    with pytest.raises(MissingFileError, match=f"does not exist on {transport.where}"):
        transport.pull(f"{there}/{path}", here)


def test_a_file_does_not_go_onto_a_folder(transport: Transport, here: Path, there: Path) -> None:
    (here / "file").touch()
    (there / "file").touch()
    with pytest.raises(TransportError, match="is a folder"):
        transport.push(here / "file", str(there))
    with pytest.raises(TransportError, match="is a folder"):
        transport.pull(str(there / "file"), here)
    assert [path.name for path in there.iterdir()] == ["file"]


def test_an_impossible_parent_is_said(transport: Transport, here: Path, there: Path) -> None:
    (here / "file").touch()
    (there / "blocked").touch()
    with pytest.raises(TransportError, match=rf"cannot write .* on {transport.where}"):
        transport.push(here / "file", str(there / "blocked" / "sub" / "file"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", ""])
def test_files_from_stays_below_the_source(transport: Transport, here: Path, there: Path, path: str) -> None:
    with pytest.raises(ValueError, match="not a relative path"):
        transport.push(here, str(there), options=SyncOptions(files_from=(path,)))
