"""A place of the test's own for the sockets of kept logins."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from clusterkit.transport.openssh import master
from tests.processes import processes


@contextmanager
def runtime_folder() -> Iterator[pytest.MonkeyPatch]:
    """XDG_RUNTIME_DIR, short enough for a socket's path; every master in it is ended afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ck-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(folder))
        try:
            yield environment
        finally:
            end_masters(folder)
            shutil.rmtree(folder)


def end_masters(folder: Path) -> None:
    """End the masters whose sockets lie below a runtime folder."""
    for path in (folder / "clusterkit").glob("?" * 16):
        master.end(path)
    deadline = time.monotonic() + 10
    while masters(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in masters(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def masters(folder: Path) -> list[int]:
    """Process ids of the ssh masters whose sockets lie below a runtime folder."""
    return [
        process.pid
        for process in processes()
        if f"{folder}/clusterkit/" in process.arguments and process.arguments.startswith("ssh")
    ]
