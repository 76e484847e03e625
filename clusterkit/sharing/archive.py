"""An archive with a list of checksums: written reproducibly, read as untrusted input.

Everything in it is in one folder, whose SHA256SUMS lists every file for `sha256sum -c`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from clusterkit.errors import ClusterkitError, RunError
from clusterkit.sharing.entries import Content, entries
from clusterkit.untrusted import of_tools

SUMS = "SHA256SUMS"
TREES = ("code", "trainer")
"""Folders of a run's snapshots, in the order of `RunSpec.trees`."""
_BLOCK = 1 << 20
_LONGEST_SUMS = 64 << 20
"""Bytes; it is read into memory, and a received one is not trusted to be small."""
_MOST_TIMES = 1000
"""Largest expansion of a received archive, as a factor; gzip reaches about as much on zeros."""
_SHOWN = 100
"""Characters of a name in a message."""
_SUM = re.compile(rb"(\\?)([0-9a-f]{64})  ([^\n]+)\n")
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


@dataclass(frozen=True)
class ArchiveMember:
    """The content of one path in an archive: exactly one of `file`, `content` and `link`."""

    file: Path | None = None
    content: bytes | None = None
    link: str | None = None
    """Target of a symbolic link."""
    size: int = 0
    """Bytes of the file to archive; it may grow in the meantime."""
    executable: bool = False


def of_file(path: Path, *, executable: bool = False) -> ArchiveMember:
    """Returns a member with the current content of a file."""
    return ArchiveMember(file=path, size=path.stat().st_size, executable=executable)


def write(path: Path, root: str, members: Mapping[str, ArchiveMember]) -> None:
    """Writes an archive atomically, after reading it back as a check.

    Args:
        path: ends in `.tar.gz` or `.tar.zst`.
        root: name of the archive's top folder.
        members: by path below `root`; SHA256SUMS is added.

    Raises:
        ClusterkitError: zstd is missing, or the disk is full.
        RunError: a file changed in the meantime.
    """
    sums = "".join(
        _sum_line(_digest(member), name)
        for name, member in sorted(members.items(), key=_by_name)
        if member.link is None
    )
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            part.chmod(0o600)
            with (
                _compressed(file, path) as stream,
                tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                # The list comes first, so that a reader can check each file as it unpacks it.
                _add(
                    archive, f"{root}/{SUMS}", ArchiveMember(content=sums.encode("utf-8", "surrogateescape"))
                )
                for name, member in sorted(members.items(), key=_by_name):
                    _add(archive, f"{root}/{name}", member)
            file.flush()
            os.fsync(file.fileno())
        read(part, own=True)
        part.replace(path)
    except OSError as error:
        raise ClusterkitError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def read(
    path: Path,
    into: Path | None = None,
    wanted: Callable[[str], int | None] | None = None,
    *,
    own: bool = False,
) -> str:
    """Checks an archive against its checksums and, if wanted, unpack it.

    Links are created last and nothing is written through one; nothing is written outside the folder.

    Args:
        path: the archive.
        into: a private folder without the files to unpack; None unpacks nothing.
        wanted: for a path below the archive's top folder, the most bytes of a file or the exact length of a
            link's target; None skips the path. Without `wanted` everything is unpacked.
        own: this process has just written it, so no compression ratio is suspicious.

    Returns:
        Name of the archive's top folder.

    Raises:
        RunError: it is not a clusterkit export, is damaged, or has forbidden content.
    """
    sums: dict[str, str] | None = None
    links: dict[str, str] = {}
    root = ""
    try:
        left = _MOST_TIMES * path.stat().st_size + _LONGEST_SUMS
        names = _LONGEST_SUMS
        with _decompressed(path) as stream:
            for entry, source in entries(stream):
                top, _, name = entry.name.partition("/")
                root = root or top
                if top != root or not name or not _harmless(entry.name) or "\0" in entry.linkname:
                    raise RunError(f"{path}: {entry.name[:_SHOWN]!r} is not allowed in an export")
                left -= entry.size + source.header
                names -= len(name) + len(entry.linkname)
                if (left < 0 and not own) or names < 0:
                    raise RunError(f"{path}: it unpacks to far more data than an export contains")
                if entry.issym():
                    links[name] = entry.linkname
                    continue
                if sums is None and name == SUMS and entry.size <= _LONGEST_SUMS:
                    sums = _parse_sums(source.read(entry.size))
                    continue
                most = None if into is None else wanted(name) if wanted else entry.size
                if most is not None and entry.size > most:
                    raise RunError(
                        f"{path}: {name[:_SHOWN]!r} has {entry.size} bytes, and at most {most} are allowed"
                    )
                if sums is None or name not in sums:
                    raise RunError(f"{path}: {name[:_SHOWN]!r} is not in {SUMS}")
                target = None if into is None or most is None else into / entry.name
                if sums.pop(name) != _copy(source, target, entry.mode):
                    raise RunError(f"{path}: {name[:_SHOWN]!r} is damaged")
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read as an export of clusterkit: {error}") from error
    if sums is None or sums:
        what = f"{next(iter(sums))[:_SHOWN]!r} is missing" if sums else f"it has no {SUMS}"
        raise RunError(f"{path}: not a complete export of clusterkit: {what}")
    behind = (name for name in links if any(str(up) in links for up in PurePosixPath(name).parents))
    through = next(behind, None)
    if through is not None:
        raise RunError(f"{path}: {through[:_SHOWN]!r} is behind a link")
    if into is not None:
        kept = {
            name: target
            for name, target in links.items()
            if wanted is None or wanted(name) == len(os.fsencode(target))
        }
        _make_links(path, into / root, kept)
    return root


def _make_links(path: Path, folder: Path, links: Mapping[str, str]) -> None:
    for name, target in links.items():
        link = folder / name
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        except OSError as error:
            raise RunError(f"{path}: {name[:_SHOWN]!r} cannot be unpacked: {error.strerror}") from error


def _by_name(item: tuple[str, ArchiveMember]) -> bytes:
    return os.fsencode(item[0])


def _digest(member: ArchiveMember) -> str:
    if member.file is None:
        return hashlib.sha256(member.content or b"").hexdigest()
    digest, left = hashlib.sha256(), member.size
    with member.file.open("rb") as file:
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _add(archive: tarfile.TarFile, name: str, member: ArchiveMember) -> None:
    """Adds a member without anything that depends on this machine: no times, no owners."""
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755 if member.executable else 0o644
    if member.link is not None:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, member.link, 0o777
        archive.addfile(entry)
    elif member.file is not None:
        entry.size = member.size
        with member.file.open("rb") as file:
            archive.addfile(entry, file)
    else:
        content = member.content or b""
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


def _sum_line(digest: str, name: str) -> str:
    """Returns a line in sha256sum's format: a leading backslash marks an escaped name."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
    return f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n"


def _parse_sums(data: bytes) -> dict[str, str]:
    sums = {}
    for line in io.BytesIO(data):
        match = _SUM.fullmatch(line)
        if match is None:
            raise ValueError(f"{SUMS} is not a list of checksums")
        name = match[3].decode("utf-8", "surrogateescape")
        if match[1]:
            name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        sums[name] = match[2].decode("ascii")
    return sums


def _harmless(name: str) -> bool:
    return (
        "\0" not in name
        and not name.startswith("/")
        and not of_tools(name)
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )


def _copy(source: Content, target: Path | None, mode: int) -> str:
    """Writes a file that must not exist yet; returns its sha256."""
    digest = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            opened = os.open(target, flags, 0o700 if mode & 0o100 else 0o600)
            file = stack.enter_context(os.fdopen(opened, "wb"))
        while block := source.read(_BLOCK):
            digest.update(block)
            if file is not None:
                file.write(block)
    return digest.hexdigest()


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[IO[bytes]]:
    if path.name.endswith(".zst"):
        with _zstd(["-q", "-3", "-T0", "-c"], stdin=subprocess.PIPE, stdout=file) as process:
            assert process.stdin is not None
            yield process.stdin
            process.stdin.close()
            if process.wait() != 0:
                raise OSError(f"zstd ended with {process.returncode}")
    else:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as stream:
            yield cast("IO[bytes]", stream)


@contextmanager
def _decompressed(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb", buffering=0) as file:  # unbuffered: zstd reads on from our offset
        magic = file.read(4)
        file.seek(0)
        if magic == _ZSTD:
            with _zstd(["-q", "-d", "-c"], stdin=file, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                yield process.stdout
                _finish(process.stdout)
                if process.wait() != 0:
                    raise OSError("it is damaged")
        elif magic.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as stream:
                yield cast("IO[bytes]", stream)
                _finish(cast("IO[bytes]", stream))
        else:
            raise ValueError("neither .tar.gz nor .tar.zst")


def _finish(stream: IO[bytes]) -> None:
    """Reads the rest of the stream after the tar: padding zeros and the compressor's checksum."""
    left = _BLOCK
    while data := stream.read(left):
        left -= len(data)
    if not left:
        raise ValueError("there is data after its end")


@contextmanager
def _zstd(
    options: list[str], *, stdin: int | BinaryIO, stdout: int | BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    if shutil.which("zstd") is None:
        raise ClusterkitError(
            "zstd, which .tar.zst needs, is not installed", hint="install it, or use `-o FILE.tar.gz`"
        )
    process = subprocess.Popen(
        ["zstd", *options], stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, restore_signals=True
    )
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if process.poll() is None:
            process.kill()
        process.wait()
