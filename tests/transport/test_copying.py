"""Without rsync the same happens as with it: compared with rsync itself, and where things break."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from tarfile import TarInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR
from clusterkit.transport import copying, rsync, tarred
from clusterkit.transport.base import Move, SyncOptions, TransferProgress, Transport
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry, changed, select
from clusterkit.transport.copying import copy
from clusterkit.transport.factory import connect
from clusterkit.transport.local import LocalTransport
from clusterkit.transport.sides import Reading, ThisMachine
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.programs import write_program
from tests.transport.test_ssh import random_file, small_disk
from tests.transport.tools import only

pytestmark = pytest.mark.slow  # real servers or processes, a second or more each

__all__ = ["small_disk"]


def picture(folder: Path) -> dict[str, object]:
    """Everything below a folder: kinds, modes, contents, times to the second."""
    seen: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            seen[name] = str(path.readlink())
        elif path.is_dir():
            seen[name] = stat.S_IMODE(status.st_mode)
        else:
            seen[name] = (stat.S_IMODE(status.st_mode), path.read_bytes(), int(status.st_mtime))
    return seen


def plant(folder: Path, tree: dict[str, object]) -> None:
    """Files (bytes), links (str) and folders (None); a name below a file is left out."""
    folder.mkdir()
    for name, what in sorted(tree.items()):
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if what is None:
                path.mkdir(exist_ok=True)
            elif isinstance(what, str):
                path.symlink_to(what)
            else:
                path.write_bytes(bytes(what))  # type: ignore[call-overload]
                path.chmod(0o640 if len(name) % 2 else 0o755)
                os.utime(path, (1_700_000_000, 1_700_000_000 + len(bytes(what)) // 3))  # type: ignore[call-overload]
        except OSError:
            continue


PARTS = st.sampled_from(["a", "b", "x.log", "y.txt", "sub", "wild*", "sp ace", "ü"])
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
CONTENT = st.one_of(
    st.none(), st.sampled_from(["a", "../b", "/etc/passwd", "../../x"]), st.binary(max_size=7)
)
TREES = st.dictionaries(NAMES, CONTENT, max_size=8)
GLOBS = ["/*.log", "/a", "/sub/", "/a/b", "/b/*", "/*/x.log", "/wild*", "/y*t", "/sub/*/", "/*"]
PATTERNS = st.lists(st.sampled_from(GLOBS), max_size=3).map(tuple)
OPTIONS = st.builds(
    SyncOptions,
    exclude=PATTERNS,
    delete=st.booleans(),
    checksum=st.booleans(),
    mode=st.sampled_from([None, "D700,F600", "Dgo=,Fgo=,Fu-w", "go-rwx", "Dg=rx,Do=,Fg=rX,Fo=,Fugo-w"]),
)


@pytest.mark.needs("rsync")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=TREES, target=TREES, options=OPTIONS, pulling=st.booleans())
@example(
    source={"sub": None},
    target={"sub": "a"},
    options=SyncOptions(exclude=("/sub/",), delete=True),
    pulling=False,
)
def test_a_tree_ends_up_as_rsync_would_leave_it(
    tmp_path_factory: pytest.TempPathFactory,
    source: dict[str, object],
    target: dict[str, object],
    options: SyncOptions,
    pulling: bool,
) -> None:
    place = tmp_path_factory.mktemp("copy")
    plant(place / "source", source)
    plant(place / "ours", target)
    shutil.copytree(place / "ours", place / "peers", symlinks=True)
    shutil.copystat(place / "ours", place / "peers")
    argv = rsync.build_argv(
        str(place / "source"), str(place / "peers"), options, folder=True, pulling=pulling
    )
    done = subprocess.run(argv, capture_output=True, check=False)
    move = Move(str(place / "source"), str(place / "ours"), options, None, pulling)
    copy(ThisMachine(), ThisMachine(), move)
    if done.returncode == 0:  # 23: it could not replace a folder that is not empty, and says so
        assert picture(place / "ours") == picture(place / "peers")


@pytest.mark.parametrize("spec", ["D700,F600", "F400", "Dgo=,Fgo=,Fu-w", "u+x", "go-rwx", "a=r", "F=rX,g+w"])
def test_modes_are_rsyncs(tmp_path: Path, spec: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    modes = (0o644, 0o755, 0o600, 0o777, 0o444)
    for mode in modes:
        (source / f"{mode}").touch()
        (source / f"{mode}").chmod(mode)
    subprocess.run(["rsync", "-rp", f"--chmod={spec}", f"{source}/", tmp_path / "target"], check=True)
    found = [stat.S_IMODE((tmp_path / "target" / f"{mode}").stat().st_mode) for mode in modes]
    assert found == [changed(mode, spec, folder=False) for mode in modes]


def test_an_unknown_mode_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="not a mode"):
        changed(0o600, "g=u", folder=False)


@pytest.mark.parametrize(
    "listing",
    [
        {"a": (LINK, "."), "a/b": (FOLDER, ""), "a/b/c": (LINK, "../../out"), "a/b/c/d": (FILE, "")},
        {"a": (LINK, "b"), "a/d": (FILE, "")},
        {"a": (FILE, ""), "a/d": (FILE, "")},
        {"a/d": (FILE, "")},
    ],
    ids=["links", "link", "file", "nothing"],
)
def test_nothing_lies_in_what_is_no_folder(listing: dict[str, tuple[str, str]]) -> None:
    entries = {name: CopyEntry(kind, 0o700, 0, 0, target) for name, (kind, target) in listing.items()}
    with pytest.raises(TransportError, match="is listed without the folder it lies in"):
        select(entries, SyncOptions(), pulling=True)


class Counted(ThisMachine):
    """Counts what is asked of it for single files."""

    asked = 0

    def prefix_digest(self, path: str, size: int) -> str:
        self.asked += 1
        return super().prefix_digest(path, size)

    def read(self, root: str, wanted: Mapping[str, tuple[int, int]]) -> Reading:
        self.asked += len(wanted)
        return super().read(root, wanted)


@pytest.mark.parametrize("inplace", [False, True], ids=["partial", "in place"])
def test_files_that_have_arrived_before_are_not_asked_for_one_by_one(tmp_path: Path, inplace: bool) -> None:
    names = {f"sub/{number}": bytes([number]) * 10 for number in range(20)}
    plant(tmp_path / "source", dict(names))
    arrived = tmp_path / "target" / "sub" / ("" if inplace else PARTIAL_DIR)
    arrived.mkdir(parents=True)
    for name, data in names.items():
        (arrived / Path(name).name).write_bytes(data)
    (arrived / "7").write_bytes(b"?" * 10)
    source, target = Counted(), Counted()
    options = SyncOptions(inplace=inplace)
    moved = copy(source, target, Move(f"{tmp_path}/source/", f"{tmp_path}/target", options, None, False))
    assert (moved.files, moved.bytes) == (20, 10)
    assert (source.asked, target.asked) == (1, 0)
    assert picture(tmp_path / "target") == picture(tmp_path / "source")


def test_what_cannot_be_looked_at_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "listdir", denied)
    move = Move(f"{tmp_path}/source/", f"{tmp_path}/target", SyncOptions(), None, False)
    with pytest.raises(TransportError, match=r"cannot read .*source/ on this machine: Permission denied"):
        copy(ThisMachine(), ThisMachine(), move)


# over ssh ------------------------------------------------------------------------------------


@pytest.fixture
@needing("sshd")
def serve(tmp_path: Path) -> Iterator[Callable[..., LoopbackSshd]]:
    with ExitStack() as stack:

        def start(bashrc: str) -> LoopbackSshd:
            server = stack.enter_context(closing(LoopbackSshd(tmp_path / "sshd")))
            (server.home / ".bashrc").write_text(bashrc)
            return server

        yield start


@pytest.fixture
def slow_road(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no rsync."""
    monkeypatch.setenv("PATH", str(tools))


def to(server: LoopbackSshd) -> Transport:
    return connect(server.alias, ssh_config=server.ssh_config)


@pytest.mark.parametrize(
    "words",
    [
        ("f", "644", "9" * 5000, "1.0", "", "./a"),
        ("f", "x", "1", "1.0", "", "./a"),
        ("f", "644", "1", "nan", "", "./a"),
        ("f", "644", "1", "1.0", "", "./../../a"),
        ("f", "644", "1", "1.0", "", ".//etc/a"),
    ],
    ids=["size", "mode", "time", "above", "root"],
)
def test_a_listing_that_is_none(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path, words: tuple[str, ...]
) -> None:
    tools = write_program(there / "bin", "find", f"cat {there}/bin/listing")
    (tools / "listing").write_text("".join(f"{word}\0" for word in words))
    with (
        closing(to(serve(f"PATH={tools}:$PATH\n"))) as transport,
        pytest.raises(TransportError, match="what find printed is no listing"),
    ):
        transport.pull(f"{there}/", here / "target")


def of_size(size: int) -> bytes:
    """The header of a file in an archive."""
    member = TarInfo("a")
    member.size = size
    return member.tobuf()


def negative() -> bytes:
    """The header of a file that says to have less than nothing."""
    fields = of_size(0x123)
    size = fields[124:136]
    minus = b"-%010o\0" % 512
    total = sum(fields[:148]) + 8 * ord(" ") + sum(fields[156:]) - sum(size) + sum(minus)
    return fields[:124] + minus + fields[136:148] + b"%06o\0 " % total + fields[156:]


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (b"x" * 512, "what tar printed is no archive"),
        (TarInfo("../b").tobuf() + bytes(1024), "tar printed a file that was not asked for"),
        (negative(), "what tar printed is no archive: negative size"),
        (b"", "tar broke off before its archive ended"),
        (of_size(700) + b"x" * 100, "tar broke off before its archive ended"),
        (of_size(700) + b"x" * 700 + bytes(324), "tar broke off before its archive ended"),
    ],
    ids=["noise", "another name", "negative size", "nothing", "half a file", "no end"],
)
def test_an_archive_that_is_none(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path, archive: bytes, words: str
) -> None:
    (there / "a").write_bytes(b"x" * 700)
    tools = write_program(here / "bin", "tar", f"cat {here}/bin/archive")
    (tools / "archive").write_bytes(archive)
    with (
        closing(to(serve(f"PATH={tools}:$PATH\n"))) as transport,
        pytest.raises(TransportError, match=words),
    ):
        transport.pull(f"{there}/", here / "target")
    assert list(here.rglob("b")) == []
    assert not (here / "target/a").exists()


def test_a_tar_that_is_killed_leaves_no_half_of_a_file(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path
) -> None:
    for name in "abc":
        (there / name).write_bytes(b"x" * 5000)
    tools = write_program(here / "bin", "tar", '/bin/tar "$@" | head -c 8000\nkill -s KILL $$')
    with (
        closing(to(serve(f"PATH={tools}:$PATH\n"))) as transport,
        pytest.raises(TransportError),
    ):
        transport.pull(f"{there}/", here / "target")
    assert [path.name for path in (here / "target").iterdir()] == [PARTIAL_DIR]


def test_the_longest_names_travel_in_whole_changes(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path
) -> None:
    folder = here.joinpath(*["n" * 240] * 5)
    folder.mkdir(parents=True)
    for number in range(100):
        (folder / f"{number:0240}").write_text(f"{number}")
    with closing(to(serve(""))) as transport:
        assert transport.push(here, str(there)).files == 100
    assert picture(there) == picture(here)


def test_a_file_that_grows_without_end_holds_up_no_other(
    serve: Callable[..., LoopbackSshd],
    slow_road: None,
    here: Path,
    there: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tarred, "_MOST_UNREAD", 0)
    (there / "a").write_bytes(b"listed")
    (there / "b").write_bytes(b"whole")
    tools = write_program(here / "bin", "tar", f'head -c 3000000 /dev/zero >>{there}/a\nexec /bin/tar "$@"')
    with closing(to(serve(f"PATH={tools}:$PATH\n"))) as transport:
        assert transport.pull(f"{there}/", here / "target").files == 2
    assert (here / "target/a").read_bytes() == b"listed"
    assert (here / "target/b").read_bytes() == b"whole"


def test_it_says_so_once(
    serve: Callable[..., LoopbackSshd],
    slow_road: None,
    here: Path,
    there: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copying.say_once.cache_clear()
    (here / "file").touch()
    with closing(to(serve(""))) as transport:
        for _ in range(2):
            transport.push(here, str(there))
    assert [record.getMessage() for record in caplog.records if record.name == "clusterkit"] == [
        "rsync is not installed on this machine: files are copied without it, which is slower"
    ]


@pytest.mark.parametrize("over", ["local", "ssh"])
def test_with_an_rsync_that_lacks_an_option_files_travel_without_it(
    serve: Callable[..., LoopbackSshd],
    over: str,
    tmp_path: Path,
    here: Path,
    there: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = "rsync: unrecognized option '--info=progress2'"
    old = write_program(tmp_path / "old", "rsync", f'echo "{words}" >&2\nexit 1')
    copying.say_once.cache_clear()
    (here / "file").write_text("x")
    with closing(LocalTransport() if over == "local" else to(serve(""))) as transport:
        monkeypatch.setenv("PATH", f"{old}:{os.environ['PATH']}")
        transport.push(here, str(there))
    assert (there / "file").read_text() == "x"
    assert [record.getMessage() for record in caplog.records if record.name == "clusterkit"] == [
        "rsync on this machine is too old (3.1 or newer is needed): "
        "files are copied without it, which is slower"
    ]


def test_neither_rsync_nor_tar_is_said(
    serve: Callable[..., LoopbackSshd], tmp_path: Path, here: Path, there: Path
) -> None:
    server = serve(f"PATH={only(tmp_path / 'bin', 'sh', 'env', 'mkdir')}\n")
    with (
        closing(to(server)) as transport,
        pytest.raises(TransportError, match="rsync is not installed on node") as caught,
    ):
        transport.push(here, str(there))
    assert "install rsync there" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("find", "find: unrecognized: -printf"),
        ("find", "find: -printf: unknown primary or operator"),
        ("tar", "tar: unrecognized option '--hard-dereference'"),
        ("tar", "tar: Option --hard-dereference is not supported"),
    ],
    ids=["BusyBox's find", "BSD's find", "BusyBox's tar", "BSD's tar"],
)
def test_tools_that_are_not_gnus_have_a_cure(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path, tool: str, words: str
) -> None:
    (there / "a").touch()
    tools = write_program(here / "bin", tool, f'echo "{words}" >&2\nexit 1')
    with closing(to(serve(f"PATH={tools}:$PATH\n"))) as transport, pytest.raises(TransportError) as caught:
        transport.pull(f"{there}/", here / "target")
    assert caught.value.cause == f"node: {words}"
    assert "rsync" in str(caught.value.hint)


@pytest.mark.parametrize("pulling", [False, True], ids=["push", "pull"])
@pytest.mark.parametrize("inplace", [False, True], ids=["partial", "in place"])
def test_it_resumes_after_the_connection_died(
    pulling: bool,
    inplace: bool,
    serve: Callable[..., LoopbackSshd],
    slow_road: None,
    here: Path,
    there: Path,
) -> None:
    server = serve("")
    source, target = (there, here) if pulling else (here, there)
    data = random_file(source / "big", 6)
    arriving = target / "big" if inplace else target / PARTIAL_DIR / "big"

    drops: list[int] = []

    def drop_once(_: TransferProgress) -> None:
        if not drops and arriving.exists() and (there_already := arriving.stat().st_size) > 1_000_000:
            drops.append(there_already)
            server.drop_connections()

    options = SyncOptions(inplace=inplace, bandwidth_limit=2_000_000)
    with closing(to(server)) as transport:
        if pulling:
            moved = transport.pull(str(there), here, options=options, progress=drop_once)
        else:
            moved = transport.push(here, str(there), options=options, progress=drop_once)
    # by a new login, for which nobody need be asked
    assert drops
    assert moved.bytes <= len(data) - drops[0]
    assert (target / "big").read_bytes() == data
    assert [path.name for path in target.iterdir()] == ["big"]


def test_a_damaged_beginning_is_not_built_on(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path
) -> None:
    data = random_file(here / "big", 1)
    (there / "big").write_bytes(b"x" + data[1:500_000])
    with closing(to(serve(""))) as transport:
        assert transport.push(here, str(there), options=SyncOptions(inplace=True)).bytes == len(data)
    assert (there / "big").read_bytes() == data


def test_full_disks_are_said(
    serve: Callable[..., LoopbackSshd], slow_road: None, here: Path, there: Path, small_disk: Path
) -> None:
    random_file(here / "big", 5)
    random_file(there / "big", 5)
    with closing(to(serve(""))) as transport:
        with pytest.raises(TransportError, match=r"cannot write .* on node: Wrote only .* \(is the disk"):
            transport.push(here, str(small_disk))
        shutil.rmtree(small_disk / PARTIAL_DIR)
        with pytest.raises(TransportError, match=r"no space left on device on this machine: cannot write"):
            transport.pull(str(there), small_disk)
