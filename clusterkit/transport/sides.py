"""This machine's side of a transfer without rsync."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from clusterkit.folders import make_private
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry

_CHUNK = 1 << 18

Reading = Generator[tuple[str, Iterator[bytes]], None, None]
"""Files with their bytes, to be read before the next file."""


class FileChange(NamedTuple):
    """A change of one name."""

    what: Literal["remove", "remove folder", "folder", "link", "hard link", "move", "settle"]
    name: str
    other: str = ""
    """What a link points to, the absolute path of a hard link, or the new name."""
    mode: int = 0
    mtime_ns: int = 0


Arriving = tuple[str, int, CopyEntry, Iterator[bytes]]
"""A file on its way: path, bytes of its beginning that are there already; mode, size and time; the rest."""


class ThisMachine:
    """This machine's files. Faults are OSErrors."""

    where = "this machine"

    def listing(self, root: str, *, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """Returns what lies below a folder, or below `only` these names and the folders on the way to them.

        A link on the way is the folder it points to, any other is itself. Nothing when the root is missing;
        names that are missing are left out.
        """
        if only is None:
            return dict(_below(root, ""))
        entries: dict[str, CopyEntry] = {}
        for name in only:
            parts = name.split("/")
            ways = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
            for way in ways:
                entry = _entry(f"{root}/{way}", follow=way != name)
                if entry is None:
                    break
                entries[way] = entry
            else:
                if entries[name].kind == FOLDER:
                    entries.update(_below(root, f"{name}/"))
        return entries

    def entry(self, path: str) -> CopyEntry | None:
        """Returns one file or folder, through links; None where there is none."""
        return _entry(path, follow=True)

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """Returns the sha256 of files."""
        digests = []
        for name in names:
            with Path(f"{root}/{name}").open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return digests

    def prefix_digest(self, path: str, size: int) -> str:
        """Returns the sha256 of the first bytes of a file."""
        digest = hashlib.sha256()
        for data in _bytes_of(path, 0, size):
            digest.update(data)
        return digest.hexdigest()

    def read(self, root: str, wanted: Mapping[str, tuple[int, int]]) -> Reading:
        """Yields the files that are there.

        Args:
            root: the folder they are below.
            wanted: where to start, and the size when it was listed, by name.
        """
        for name, (start, end) in wanted.items():
            yield name, _bytes_of(f"{root}/{name}", start, end)

    def write(self, root: str, files: Iterable[Arriving]) -> None:
        """Writes files with their modes and times. What was begun stays, private, when this breaks off."""
        for path, start, entry, pieces in files:
            handle = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(handle, "wb", buffering=0) as file:
                file.seek(start)
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
                file.truncate()
            self.change(root, [FileChange("settle", path, mode=entry.mode, mtime_ns=entry.mtime_ns)])

    def change(self, root: str, changes: Sequence[FileChange]) -> None:
        """Makes a private folder, and its parents, where it is missing; then carries out changes below it."""
        make_private(Path(root))
        for change in changes:
            path = Path(f"{root}/{change.name}")
            match change.what:
                case "remove":
                    path.unlink(missing_ok=True)
                case "remove folder":
                    with contextlib.suppress(OSError):
                        path.rmdir()
                case "folder":
                    make_private(path)
                case "link":
                    path.symlink_to(change.other)
                case "hard link":
                    path.hardlink_to(change.other)
                case "move":
                    path.replace(f"{root}/{change.other}")
                case "settle":
                    path.chmod(change.mode)
                    os.utime(path, ns=(change.mtime_ns, change.mtime_ns))


def _bytes_of(path: str, start: int, end: int) -> Iterator[bytes]:
    with Path(path).open("rb", buffering=0) as file:
        file.seek(start)
        while start < end and (data := file.read(min(_CHUNK, end - start))):
            start += len(data)
            yield data


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
