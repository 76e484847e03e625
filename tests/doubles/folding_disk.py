"""A file system that keeps the case of names and does not tell names by it, as a Mac's.

As a program, for the system's own Python with fusepy: `folding_disk.py BELOW FOLDER` mounts BELOW on FOLDER.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PYTHON = "/usr/bin/python3"
"""The interpreter that Debian's package installs fusepy for."""


@contextmanager
def folding_disk(folder: Path) -> Iterator[Path]:
    """Mounts such a file system on a folder until the end of the block."""
    from tests.needs import need

    need("a folding disk")
    below = folder.with_name(f"{folder.name}-below")
    for each in (folder, below):
        each.mkdir(parents=True)
    server = subprocess.Popen([PYTHON, __file__, below, folder])
    try:
        deadline = time.monotonic() + 60
        while not folder.is_mount():
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        server.wait(60)


def _serve(below: str, folder: str) -> None:
    import fusepy

    def found(path: str) -> Path:
        """Returns the path below, each name as it is there if it differs in case alone."""
        real = Path(below)
        for name in Path(path).parts[1:]:
            names = [each.name for each in real.iterdir()] if real.is_dir() else []
            real /= next((each for each in names if each.casefold() == name.casefold()), name)
        return real

    class Folding(fusepy.Operations):  # type: ignore[misc]
        """Passes each call on to the folder below."""

        use_ns = True  # times in nanoseconds

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            info = found(path).lstat()
            plain = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size")
            times = ("st_atime", "st_mtime", "st_ctime")
            return {name: getattr(info, name) for name in plain} | {
                name: getattr(info, f"{name}_ns") for name in times
            }

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *(each.name for each in found(path).iterdir())]

        def open(self, path: str, flags: int) -> int:
            return os.open(found(path), flags)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(found(path), os.O_RDWR | os.O_CREAT, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data, offset)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            os.truncate(found(path), length)

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def unlink(self, path: str) -> None:
            found(path).unlink()

        def rmdir(self, path: str) -> None:
            found(path).rmdir()

        def mkdir(self, path: str, mode: int) -> None:
            found(path).mkdir(mode)

        def rename(self, old: str, new: str) -> None:
            found(old).rename(found(new))

        def link(self, target: str, source: str) -> None:
            found(target).hardlink_to(found(source))

        def chmod(self, path: str, mode: int) -> None:
            found(path).chmod(mode)

        def statfs(self, path: str) -> dict[str, int]:
            info = os.statvfs(found(path))
            return {
                name: getattr(info, name)
                for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail")
            }

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
            os.utime(found(path), ns=times)

    fusepy.FUSE(Folding(), folder, foreground=True, nothreads=True, use_ino=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
