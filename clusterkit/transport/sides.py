"""The two sides of a transfer without rsync: what `copying` asks of each, and this machine's side."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from clusterkit.folders import make_private
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry

CHUNK = 1 << 18


class Side(Protocol):
    """One machine's files, by absolute path. Faults are OSErrors, or TransportErrors of the connection."""

    where: str

    def listing(self, root: str, *, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """What lies below a folder, or below `only` these names and the folders on the way to them.

        A link on the way is the folder it points to, any other is itself. Nothing when the root is missing;
        names that are missing are left out.
        """
        ...

    def entry(self, path: str) -> CopyEntry | None:
        """One file or folder, through links; None where there is none."""
        ...

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """sha256 of files."""
        ...

    def prefix_digest(self, path: str, size: int) -> str:
        """sha256 of the first bytes of a file."""
        ...

    def read(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a file from `start` on, of which there were `end` when it was listed."""
        ...

    def write(self, path: str, start: int, pieces: Iterator[bytes]) -> None:
        """Write pieces from `start` on and end the file there; a new file is private."""
        ...

    def settle(self, path: str, mode: int, mtime_ns: int) -> None:
        """Set mode and time."""
        ...

    def make_folder(self, path: str) -> None:
        """A private folder, and its parents; one that is there is fine."""
        ...

    def make_link(self, path: str, target: str) -> None:
        """A symbolic link."""
        ...

    def hard_link(self, path: str, old: str) -> None:
        """Another name for a file."""
        ...

    def rename(self, path: str, new: str) -> None:
        """Give a file another name, replacing what has it."""
        ...

    def remove(self, path: str, *, folder: bool) -> None:
        """Remove a file or an empty folder; one that is not empty stays."""
        ...


class ThisMachine:
    """This machine."""

    where = "this machine"

    def listing(self, root: str, *, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """See `Side.listing`."""
        if only is None:
            return dict(_below(root, ""))
        found: dict[str, CopyEntry] = {}
        for name in only:
            parts = name.split("/")
            ways = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
            for way in ways:
                entry = _entry(f"{root}/{way}", follow=way != name)
                if entry is None:
                    break
                found[way] = entry
            else:
                if found[name].kind == FOLDER:
                    found.update(_below(root, f"{name}/"))
        return found

    def entry(self, path: str) -> CopyEntry | None:
        """See `Side.entry`."""
        return _entry(path, follow=True)

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """See `Side.digests`."""
        return [self.prefix_digest(f"{root}/{name}", -1) for name in names]

    def prefix_digest(self, path: str, size: int) -> str:
        """See `Side.prefix_digest`; a negative size takes all."""
        digest = hashlib.sha256()
        with Path(path).open("rb") as file:
            while size and (data := file.read(CHUNK if size < 0 else min(CHUNK, size))):
                digest.update(data)
                size -= len(data) if size > 0 else 0
        return digest.hexdigest()

    def read(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """See `Side.read`."""
        with Path(path).open("rb", buffering=0) as file:
            file.seek(start)
            while start < end and (data := file.read(min(CHUNK, end - start))):
                start += len(data)
                yield data

    def write(self, path: str, start: int, pieces: Iterator[bytes]) -> None:
        """See `Side.write`."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "wb", buffering=0) as file:
            file.seek(start)
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            file.truncate()

    def settle(self, path: str, mode: int, mtime_ns: int) -> None:
        """See `Side.settle`."""
        Path(path).chmod(mode)
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def make_folder(self, path: str) -> None:
        """See `Side.make_folder`."""
        make_private(Path(path))

    def make_link(self, path: str, target: str) -> None:
        """See `Side.make_link`."""
        Path(path).symlink_to(target)

    def hard_link(self, path: str, old: str) -> None:
        """See `Side.hard_link`."""
        Path(path).hardlink_to(old)

    def rename(self, path: str, new: str) -> None:
        """See `Side.rename`."""
        Path(path).replace(new)

    def remove(self, path: str, *, folder: bool) -> None:
        """See `Side.remove`."""
        with contextlib.suppress(FileNotFoundError):
            if not folder:
                Path(path).unlink()
                return
            with contextlib.suppress(OSError):
                Path(path).rmdir()


def _below(root: str, prefix: str) -> Iterator[tuple[str, CopyEntry]]:
    folder = f"{root}/{prefix}"
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - Path would tidy the name up
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        entry = _entry(folder + name, follow=False)
        if entry is None:
            continue
        yield prefix + name, entry
        if entry.kind == FOLDER:
            yield from _below(root, f"{prefix}{name}/")


def _entry(path: str, *, follow: bool) -> CopyEntry | None:
    try:
        status = os.stat(path, follow_symlinks=follow)  # noqa: PTH116
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "?")
        target = os.readlink(path) if kind == LINK else ""  # noqa: PTH115
    except (FileNotFoundError, NotADirectoryError):
        return None
    return CopyEntry(
        kind, stat.S_IMODE(status.st_mode), status.st_size if kind == FILE else 0, status.st_mtime_ns, target
    )


_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
