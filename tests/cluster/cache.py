"""Keeps what is slow to build, such as a root file system, under a name made from its inputs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

UNUSED_SECONDS = 30 * 24 * 3600


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/clusterkit/testbed`; may be deleted at any time when no test runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clusterkit" / "testbed"


def cached(name: str, inputs: Iterable[str], build: Callable[[Path], None], *, suffix: str = "") -> Path:
    """The file or folder that `build(path)` makes from `inputs`; built once, whoever asks, in one piece.

    A second process that wants the same thing waits for the first. Entries of the same name that nobody has
    used for a month are removed after a build.
    """
    key = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    entry = root / f"{name}-{key}{suffix}"
    with (root / f"{entry.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not entry.exists():
            unfinished = root / f"{entry.name}.unfinished"
            remove(unfinished)
            build(unfinished)
            unfinished.rename(entry)
            _forget_unused(root, name, keep=entry)
        os.utime(entry)
    return entry


def remove(path: Path) -> None:
    """Delete a file or folder that may not be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _forget_unused(root: Path, name: str, keep: Path) -> None:
    for entry in root.glob(f"{name}-*"):
        if entry != keep and entry.suffix != ".lock" and time.time() - entry.stat().st_mtime > UNUSED_SECONDS:
            remove(entry)
