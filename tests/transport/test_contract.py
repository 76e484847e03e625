"""What every transport promises (clusterkit/transport/base.py), asked of each of them."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterkit.errors import TransportError
from clusterkit.transport.base import MissingFileError, Progress, SyncOptions, Transferred, Transport

ODD_NAMES = (
    "plain",
    "two words",
    "-rf",
    "new\nline",
    "quote'\"`",
    "$HOME",
    "grüße 漢字",
    "#comment",
    "wild*[x]?",
    "tab\t",
    "back\\slash",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def running(needle: str) -> bool:
    table = subprocess.run(
        ["ps", "-e", "-o", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    return any(needle in line and not line.startswith("Z") for line in table.splitlines())


def gone(needle: str, seconds: float = 10.0) -> bool:
    """Whether no process has `needle` in its arguments, soon."""
    deadline = time.monotonic() + seconds
    while running(needle):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", [*ODD_NAMES, "", " ", "!history", "%s", "\\", "a'b\"c", "~", "\x01\x7f", "{a,b}"]
)
def test_an_argument_arrives_to_the_letter(transport: Transport, word: str) -> None:
    assert transport.run(["printf", "%s|", word, "end"]).stdout == f"{word}|end|".encode()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=5))
def test_any_unicode_arrives_to_the_letter(transport: Transport, words: list[str]) -> None:
    expected = "".join(f"{word}\0" for word in [*words, "end"]).encode()
    assert transport.run(["printf", r"%s\0", *words, "end"]).stdout == expected


def test_bytes_that_are_no_unicode_arrive_too(transport: Transport) -> None:
    assert (
        transport.run(["printf", "%s", b"\xff\xfe".decode("utf-8", "surrogateescape")]).stdout == b"\xff\xfe"
    )


@pytest.mark.parametrize("argv", [[], ["printf", "a\0b"]])
def test_an_impossible_command_is_a_programming_error(transport: Transport, argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"empty|NUL|null"):
        transport.run(argv)


def test_output_and_errors_are_kept_apart(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.text, done.error_text, done.returncode) == ("out\n", "err\n", 0)


def test_stdin_is_delivered_and_ended(transport: Transport) -> None:
    data = os.urandom(300_000)
    assert transport.run(["cat"], stdin=data).stdout == data
    assert transport.run(["cat"]).stdout == b""


def test_much_on_all_three_streams_at_once(transport: Transport) -> None:
    script = "head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait; cat"
    data = os.urandom(5_000_000)
    done = transport.run(["sh", "-c", script], stdin=data)
    assert done.stdout == bytes(3_000_000) + data
    assert done.stderr == bytes(3_000_000)


def test_a_command_that_does_not_read_its_input(transport: Transport) -> None:
    assert transport.run(["true"], stdin=bytes(5_000_000)).returncode == 0


def test_a_failure_names_command_machine_and_last_words(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        transport.run(["sh", "-c", "echo early >&2; echo 'disk on fire' >&2; exit 3"])
    assert caught.value.cause == f"sh failed with status 3 on {transport.where}: disk on fire"


def test_unchecked_the_status_is_returned(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "exit 42"], check=False).returncode == 42


def test_a_signal_is_a_negative_status(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "kill -KILL $$"], check=False).returncode == -9


def test_a_missing_program(transport: Transport) -> None:
    assert transport.run(["no-such-program"], check=False).returncode == 127
    with pytest.raises(TransportError, match=f"^no-such-program: command not found on {transport.where}$"):
        transport.run(["no-such-program"])


def test_time_out_ends_the_whole_group(transport: Transport) -> None:
    with pytest.raises(TransportError, match=r"did not finish within 0\.3 s"):
        transport.run(["sh", "-c", "sleep 4171 & sleep 4171"], timeout=0.3)
    assert gone("sleep 4171")


def test_a_timed_out_command_that_ignores_the_polite_signal_is_killed(transport: Transport) -> None:
    with pytest.raises(TransportError, match="did not finish"):
        transport.run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; : 4172; done"], timeout=0.3)
    assert gone(": 4172")


def test_many_threads_at_once(transport: Transport) -> None:
    def echo(number: int) -> str:
        return transport.run(["sh", "-c", 'cat; echo "$1"', "sh", str(number)], stdin=b"n=").text

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(echo, range(40))) == [f"n={number}\n" for number in range(40)]


# stream --------------------------------------------------------------------------------------


def test_stream_yields_as_it_comes(transport: Transport, there: Path) -> None:
    gate = there / "gate"
    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.02; done; echo second'
    lines = transport.stream(["sh", "-c", script, "sh", str(gate)])
    assert next(lines) == b"first\n"  # the command still runs: its gate is closed
    gate.touch()
    assert b"".join(lines) == b"second\n"


def test_closing_a_stream_ends_the_command(transport: Transport) -> None:
    stream = transport.stream(["sh", "-c", "echo on; sleep 4173 & sleep 4173"])
    assert next(stream) == b"on\n"
    stream.close()  # type: ignore[attr-defined]
    assert gone("sleep 4173")


def test_a_failed_stream_says_so(transport: Transport) -> None:
    with pytest.raises(TransportError, match=r"sh failed with status 5 on .*: no more"):
        list(transport.stream(["sh", "-c", "echo some; echo 'no more' >&2; exit 5"]))
    with pytest.raises(TransportError, match="command not found"):
        list(transport.stream(["no-such-program"]))


# read and write ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD_NAMES)
def test_what_is_written_is_read(transport: Transport, there: Path, name: str) -> None:
    path = there / name
    transport.write(str(path), b"first")
    transport.write(str(path), b"\0\xffsecond\n")
    assert transport.read(str(path)) == path.read_bytes() == b"\0\xffsecond\n"
    assert [one.name for one in there.iterdir()] == [name]
    assert mode(path) == 0o600


def test_write_makes_private_parents_and_sets_the_mode(transport: Transport, there: Path) -> None:
    path = there / "a" / "b" / "run.sh"
    transport.write(str(path), b"", mode=0o755)
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o755, 0o700, 0o700)


def test_readers_never_see_half_a_write(transport: Transport, there: Path) -> None:
    path = there / "file"
    versions = {bytes([letter]) * 400_000 for letter in b"ab"}
    path.write_bytes(min(versions))
    stop, seen = threading.Event(), set()

    def look() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(5):
        for version in versions:
            transport.write(str(path), version)
    stop.set()
    looker.join()
    assert seen <= versions


def test_a_missing_file_is_told_from_an_unreadable_one(transport: Transport, there: Path) -> None:
    with pytest.raises(MissingFileError, match=rf"absent does not exist on {transport.where}$"):
        transport.read(str(there / "absent"))
    with pytest.raises(TransportError, match=r"cannot read .*: Is a directory") as caught:
        transport.read(str(there))
    assert not isinstance(caught.value, MissingFileError)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write everything")
def test_permission_denied_is_said(transport: Transport, there: Path) -> None:
    (there / "secret").touch(mode=0o000)
    with pytest.raises(TransportError, match="Permission denied"):
        transport.read(str(there / "secret"))
    there.chmod(0o500)
    with pytest.raises(TransportError, match="Permission denied"):
        transport.write(str(there / "new"), b"")


def test_a_folder_is_not_overwritten(transport: Transport, there: Path) -> None:
    with pytest.raises(TransportError, match=r"cannot write .*: Is a directory"):
        transport.write(str(there), b"")
    assert list(there.iterdir()) == []


# push and pull -------------------------------------------------------------------------------


def tree(folder: Path) -> Path:
    for number, name in enumerate(ODD_NAMES):
        (folder / name).write_bytes(os.urandom(100 + number))
    below = folder / "sub dir" / "deeper"
    below.mkdir(parents=True)
    (below / "script").write_bytes(b"#!/bin/sh\n")
    (below / "script").chmod(0o750)
    (folder / "link").symlink_to("plain")
    return folder


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


NAMES = st.text(
    st.characters(blacklist_characters="\0/", blacklist_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.sets(NAMES, max_size=6), folder=NAMES, data=st.binary(max_size=100))
def test_any_tree_goes_there_and_back(
    transport: Transport, tmp_path_factory: pytest.TempPathFactory, names: set[str], folder: str, data: bytes
) -> None:
    place = tmp_path_factory.mktemp("tree")
    source = place / "here" / folder
    source.mkdir(parents=True)
    for name in names:
        (source / name).write_bytes(data)
    transport.push(source, str(place / "there" / folder))
    transport.pull(f"{place / 'there' / folder}/", place / "back" / folder)
    assert (
        contents(place / "back") == contents(place / "here") == {f"{folder}/{name}": data for name in names}
    )


def test_nothing_to_do_moves_nothing(transport: Transport, here: Path, there: Path) -> None:
    tree(here)
    transport.push(here, str(there / "target"))
    again = transport.push(here, str(there / "target"))
    assert (again.files, again.bytes) == (0, 0)
    assert again.total_bytes > 0


@pytest.mark.parametrize("name", [name for name in ODD_NAMES if "*" not in name])
def test_a_single_file_goes_there_and_back(transport: Transport, here: Path, there: Path, name: str) -> None:
    (here / name).write_bytes(b"content")
    assert transport.push(here / name, str(there / "deep" / name)) == Transferred(1, 7, 7)
    assert contents(there) == {f"deep/{name}": b"content"}
    assert transport.pull(str(there / "deep" / name), here / "back" / name) == Transferred(1, 7, 7)
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


def test_include_exclude_and_files_from(transport: Transport, here: Path, there: Path) -> None:
    for name in ("keep.log", "drop.log", "a.txt", "sub/b.txt", "sub/#c", "sub/new\nline"):
        path = here / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    transport.push(
        here, str(there / "filtered"), options=SyncOptions(include=("keep.log",), exclude=("*.log", "sub/"))
    )
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
    transport.push(here, str(there / "two"), options=SyncOptions(link_dest=str(there / "one")))
    assert (there / "one" / "same").samefile(there / "two" / "same")
    assert (there / "one" / "other").read_bytes() == b"old"
    assert (there / "two" / "other").read_bytes() == b"newer"


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


def test_follow_links_copies_what_they_point_to(transport: Transport, here: Path, there: Path) -> None:
    (here / "outside").write_bytes(b"data")
    (here / "tree").mkdir()
    (here / "tree" / "link").symlink_to("../outside")
    transport.push(here / "tree", str(there), options=SyncOptions(follow_links=True))
    assert contents(there) == {"link": b"data"}
    assert not (there / "link").is_symlink()


def test_progress_reaches_the_whole(transport: Transport, here: Path, there: Path) -> None:
    (here / "big").write_bytes(os.urandom(8_000_000))
    reports: list[Progress] = []
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


def test_no_rsync_here(
    transport: Transport, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(TransportError, match="rsync is not installed on this machine"):
        transport.push(here, str(there))


def test_close_twice(sshd: object, request: pytest.FixtureRequest) -> None:
    from clusterkit.transport.factory import connect
    from tests.doubles.loopback_sshd import LoopbackSshd

    assert isinstance(sshd, LoopbackSshd)
    for one in (connect(None), connect(sshd.alias, ssh_config=sshd.ssh_config)):
        one.close()
        one.close()
