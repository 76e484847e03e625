"""Uploading an image as deploy does, and looking at what is there."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterkit.images.image import local_image
from clusterkit.images.planning import UploadPlan, plan
from clusterkit.images.upload import Sent, upload
from clusterkit.runs.ledger import Ledger
from clusterkit.site import Site
from clusterkit.transport.base import ProgressCallback

HEADER = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"


@contextmanager
def no_bar(label: str, total: int | None) -> Iterator[ProgressCallback]:
    yield lambda report: None


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file, in place, and none of its times or modes."""
    before = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def age(folder: Path, seconds: float) -> None:
    """Make a folder and all in it look as if nobody had written there for a while."""
    then = time.time() - seconds
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


@contextmanager
def at_work(part: Path, seconds: float = math.inf) -> Iterator[None]:
    """Somebody writes to a file all the time, or for so long."""
    done = threading.Event()

    def write() -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not done.wait(0.05):
            os.utime(part)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


@dataclass(frozen=True)
class Store:
    """The store of a site, with a laptop's cache."""

    site: Site
    cache: Path
    ledger: Ledger

    @property
    def folder(self) -> Path:
        return Path(self.site.layout.images)

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.folder.glob("*") if not path.name.startswith(".root-")}

    @property
    def mends(self) -> bool:
        """Whether only what differs travels: without rsync, and within one machine, whole files do."""
        return self.site.transport.where == "node" and shutil.which("rsync") is not None

    @property
    def uploads(self) -> list[Path]:
        """Upload folders."""
        return sorted(self.folder.glob(".upload-*"))

    def plan(self, path: Path, *, verify: bool = False) -> UploadPlan:
        return plan(self.site, path, local_image(path, self.ledger), cache=self.cache, verify=verify)

    def send(self, path: Path, *, verify: bool = False) -> Sent:
        """Plan and upload; the published file must be the one sent, private and read-only."""
        wanted = local_image(path, self.ledger)
        sent = upload(self.site, path, wanted, self.plan(path, verify=verify), cache=self.cache, bar=no_bar)
        there = self.folder / wanted.name
        assert sha256(there) == wanted.digest
        assert there.stat().st_mode & 0o777 == 0o400
        assert there.stat().st_nlink == 1
        return sent
