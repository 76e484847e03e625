"""A place of the test's own for the sockets of kept logins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from clusterkit.transport.kept import client


@contextmanager
def runtime_folder() -> Iterator[pytest.MonkeyPatch]:
    """XDG_RUNTIME_DIR, short enough for a socket's path; every keeper in it is ended afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ck-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(folder))
        try:
            yield environment
        finally:
            end_keepers(folder)
            shutil.rmtree(folder)


def end_keepers(folder: Path) -> None:
    """End the keepers whose sockets lie below a runtime folder."""
    for path in (folder / "clusterkit").glob("?" * 16):
        client.end(path)
    deadline = time.monotonic() + 10
    while keepers(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in keepers(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def keepers(folder: Path) -> list[int]:
    """Process ids of the keepers that were started for a runtime folder."""
    table = subprocess.run(
        ["ps", "-e", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    found = [
        int(line.split()[0]) for line in table.splitlines() if "clusterkit.transport.kept.keeper" in line
    ]
    return [pid for pid in found if _lives_in(pid, folder)]


def _lives_in(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        return f"XDG_RUNTIME_DIR={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
