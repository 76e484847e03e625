"""A small disk that can be filled to its last byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.needs import need


@contextmanager
def small_disk(folder: Path, *, kib: int = 512) -> Iterator[Path]:
    """A disk of that many KiB, mounted on a folder; skips where this may not be done (only root on Linux)."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "small", str(folder)]
    need("a small disk")
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs a small disk, which cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk until not one more byte fits; the file that does it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler
