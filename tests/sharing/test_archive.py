"""An archive keeps what was put into it, and nothing gets out of one that should not."""

import gzip
import hashlib
import io
import os
import random
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from clusterkit.errors import RunError
from clusterkit.sharing import archive
from clusterkit.sharing.archive import ArchiveMember

ODD = ("plain", "two words", "back\\slash", "new\nline", "ünï", os.fsdecode(b"no-\xff-utf8"), "a/b/c" * 40)
SUFFIXES = [
    ".tar.gz",
    pytest.param(".tar.zst", marks=pytest.mark.needs("zstd")),
]


def members(folder: Path) -> dict[str, ArchiveMember]:
    (folder / "script").write_bytes(b"#!/bin/sh\n" + b"x" * 3_000_000)
    return {
        **{f"odd/{name}": ArchiveMember(content=name.encode("utf-8", "surrogateescape")) for name in ODD},
        "bin/script": archive.of_file(folder / "script", executable=True),
        "bin/link": ArchiveMember(link="script"),
        "out of it": ArchiveMember(link="/etc/passwd"),
        "empty": ArchiveMember(content=b""),
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_there_and_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    archive.write(path, "root", members(tmp_path))
    first = path.read_bytes()
    os.utime(tmp_path / "script", (0, 0))
    (tmp_path / "script").chmod(0o777)
    archive.write(path, "root", dict(reversed(members(tmp_path).items())))
    assert path.read_bytes() == first, "the same bytes every time"
    assert path.stat().st_mode & 0o777 == 0o600
    into = tmp_path / "into"
    assert archive.read(path, into) == "root"
    root = into / "root"
    assert (root / "bin" / "script").read_bytes() == (tmp_path / "script").read_bytes()
    assert os.access(root / "bin" / "script", os.X_OK)
    assert not os.access(root / "empty", os.X_OK)
    assert (root / "bin" / "link").readlink() == Path("script")
    for name in ODD:
        assert (root / "odd" / name).read_bytes() == name.encode("utf-8", "surrogateescape")
    with tarfile.open(path) if suffix == ".tar.gz" else tarfile.open(None, fileobj=_plain(path)) as plain:
        assert {(entry.mtime, entry.uid, entry.uname) for entry in plain} == {(0, 0, "")}
    (tmp_path / "by hand").mkdir()
    unpack = ["tar", "-x", "-z" if suffix == ".tar.gz" else "--zstd", "-f", path]
    subprocess.run(unpack, cwd=tmp_path / "by hand", check=True)  # as a person without us would
    done = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path / "by hand" / "root", check=False
    )
    assert done.returncode == 0


def _plain(path: Path) -> io.BytesIO:
    return io.BytesIO(subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout)


def test_a_file_that_grows_is_taken_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    member = archive.of_file(log)
    log.write_text("one\ntwo\n")
    archive.write(tmp_path / "a.tar.gz", "root", {"log": member})
    archive.read(tmp_path / "a.tar.gz", tmp_path / "into")
    assert (tmp_path / "into" / "root" / "log").read_text() == "one\n"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_archive(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    archive.write(path, "root", {"x": ArchiveMember(content=os.urandom(100_000))})
    whole = path.read_bytes()
    for damaged in (
        whole[:-9],
        whole[: len(whole) // 2],
        whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
        b"",
        b"hello",
    ):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"a\.tar"):
            archive.read(path)


def test_no_damage_is_a_surprise(tmp_path: Path) -> None:
    chance = random.Random(3)
    content = chance.randbytes(20_000) + b"hello" * 5000
    path = tmp_path / "a.tar.gz"
    archive.write(
        path, "root", {"a": ArchiveMember(content=content), "b": ArchiveMember(content=content[::-1])}
    )
    whole = path.read_bytes()
    for _ in range(150):
        at = chance.randrange(10, len(whole))
        path.write_bytes(whole[:at] + chance.randbytes(20) + whole[at + 20 :])
        with pytest.raises(RunError):
            archive.read(path)


def crafted(path: Path, *entries: tuple[str, bytes, bytes | str]) -> None:
    """A tar with a right SHA256SUMS: (name, type, content or target)."""
    sums = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name.removeprefix('root/')}\n"
        for name, _, content in entries
        if isinstance(content, bytes)
    )
    with gzip.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, content in [("root/SHA256SUMS", tarfile.REGTYPE, sums.encode()), *entries]:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if isinstance(content, str):
                entry.linkname = content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


REG, SYM, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = {
    "upwards": [("root/../../evil", REG, b"x")],
    "upwards at once": [("../evil", REG, b"x")],
    "absolute": [("/tmp/evil", REG, b"x")],
    "another top": [("root/a", REG, b"x"), ("other/evil", REG, b"x")],
    "dots alone": [("root/./evil", REG, b"x")],
    "through a link": [("root/d", SYM, ".."), ("root/d/evil", REG, b"x")],
    "through a link, twice": [("root/d", SYM, "../.."), ("root/d", SYM, "../.."), ("root/d/e", REG, b"x")],
    "a link through a link": [("root/d", SYM, "../.."), ("root/d/evil", SYM, "/etc/passwd")],
    "a link in the place of all": [("root", SYM, "/etc")],
    "a hard link": [("root/evil", HARD, "/etc/passwd")],
    "a device": [("root/evil", tarfile.CHRTYPE, b"")],
    "a pipe": [("root/evil", tarfile.FIFOTYPE, b"")],
    "a file twice": [("root/a", REG, b"x"), ("root/a", REG, b"x")],
    "a link whose name has a zero byte": [("root/" + "a" * 120 + "\0b", SYM, "x")],
    "a link to a zero byte": [("root/a", SYM, "x" * 120 + "\0b")],
    **{
        f"a file of git or a like tool: {name!a}": [(f"root/{name}/config", REG, b"x")]
        for name in (
            *(".git", "a/.GIT", ".git. ", "git~1", ".g\u200cit", "a\\.git"),
            *(".hg", ".svn", ".jj", ".direnv"),
        )
    },
    "a link into git": [("root/.git/hooks", SYM, "x")],
    "a file that is a folder": [("root/a", REG, b"x"), ("root/a/b", REG, b"x")],
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive(tmp_path: Path, entries: list[tuple[str, bytes, bytes | str]]) -> None:
    home = tmp_path / "home" / "of" / "it"
    home.mkdir(parents=True)
    crafted(tmp_path / "a.tar.gz", *entries)
    with pytest.raises(RunError):
        archive.read(tmp_path / "a.tar.gz", home / "into")
    outside = [path for path in tmp_path.rglob("*") if not path.is_relative_to(home / "into")]
    assert sorted(path.name for path in outside) == ["a.tar.gz", "home", "it", "of"]


@pytest.mark.parametrize(
    ("more", "said"), [([("root/more", b"x")], "'more' is not in SHA256SUMS"), ([], "'gone' is missing")]
)
def test_an_archive_with_other_files_than_its_list_is_refused(
    tmp_path: Path, more: list[tuple[str, bytes]], said: str
) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (("root/SHA256SUMS", b"0" * 64 + b"  gone\n"), *more):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    with pytest.raises(RunError, match=said):
        archive.read(path)


def header(name: str, kind: bytes, size: int, **more: str) -> bytes:
    """A tar header that promises so many bytes; larger numbers than eight octal digits in base 256."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    entry.pax_headers = more
    return entry.tobuf(tarfile.PAX_FORMAT if more else tarfile.GNU_FORMAT)


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(8 << 60)}
BOMBS = {
    "an extended header of 4 GB": header("x", tarfile.XHDTYPE, 4 << 30),
    "a global header of 4 GB": header("x", tarfile.XGLTYPE, 4 << 30),
    "a long name of 4 GB": header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 4 << 30),
    "a long link of 4 GB": header("././@LongLink", tarfile.GNUTYPE_LONGLINK, 4 << 30),
    "a sparse file of 8 EB": header("root/a", REG, 512, **SPARSE) + b"99999999\n" + b"0\n1\n" * 125 + b"0\n0",
    "an old sparse file": header("root/a", tarfile.GNUTYPE_SPARSE, 8 << 60),
    "a file of 8 EB": header("root/SHA256SUMS", REG, 8 << 60),
    "a list of 4 GB": header("root/SHA256SUMS", REG, 4 << 30),
    "a thousand headers": b"".join(
        header("x", tarfile.XHDTYPE, 12) + b"12 path=r/a\n".ljust(512, b"\0") for _ in range(3000)
    ),
    "a size below zero": header("root/SHA256SUMS", REG, -5),
}


@pytest.mark.slow
@pytest.mark.parametrize("start", BOMBS.values(), ids=BOMBS.keys())
def test_what_promises_too_much_is_refused_before_it_is_read(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(start)
        for _ in range(64):
            stream.write(b"\1" * (1 << 20))
    (tmp_path / "into").mkdir()
    tracemalloc.start()
    try:
        with pytest.raises(RunError, match=r"a\.tar\.gz"):
            archive.read(path, tmp_path / "into")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert list((tmp_path / "into").iterdir()) == []


def test_what_is_packed_too_well_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar.gz"
    crafted(path, ("root/zeros", REG, bytes(4 << 20)))
    refuses_where_less_is_allowed(path, monkeypatch)
    archive.read(path, own=True)


def test_headers_that_are_packed_too_well_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("root/SHA256SUMS"))
        for number in range(100):
            entry = tarfile.TarInfo(f"root/{number}")
            entry.type, entry.linkname, entry.pax_headers = SYM, "x", {"comment": "0" * 60_000}
            tar.addfile(entry)
    refuses_where_less_is_allowed(path, monkeypatch)


def refuses_where_less_is_allowed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive is read, and refused before it is unpacked once its contents are too large for its size."""
    archive.read(path)
    monkeypatch.setattr(archive, "_MOST_TIMES", 100)
    monkeypatch.setattr(archive, "_LONGEST_SUMS", 1000)
    with pytest.raises(RunError, match="far more data than an export contains"):
        archive.read(path, path.parent / "into")
    assert not (path.parent / "into").exists()


def test_what_lies_behind_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    crafted(path, ("root/a", REG, b"x"))
    with gzip.open(path, "ab") as stream:
        stream.write(bytes(4 << 20))
    with pytest.raises(RunError, match="there is data after its end"):
        archive.read(path)


def test_only_what_is_wanted_is_unpacked_and_no_larger(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    links = [("root/long", SYM, "elsewhere"), ("root/short", SYM, "here")]
    crafted(path, ("root/a", REG, b"four"), ("root/b", REG, b"x" * 100), *links)
    archive.read(path, tmp_path / "into", {"a": 4, "long": 4, "short": 4}.get)
    assert sorted(each.name for each in (tmp_path / "into" / "root").iterdir()) == ["a", "short"]
    with pytest.raises(RunError, match="'b' has 100 bytes, and at most 99"):
        archive.read(path, tmp_path / "again", {"b": 99}.get)
    assert not (tmp_path / "again").exists()
