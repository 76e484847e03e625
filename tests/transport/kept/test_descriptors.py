"""A machine that runs out of file descriptors keeps none for ever, on neither side of a kept login."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.transport.kept import client, messages
from clusterkit.transport.kept.folder import socket_paths
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.kept.commands import to, until
from tests.transport.runtime import keepers

pytestmark = pytest.mark.slow  # each test starts a keeper


def count(process: int | str = "self") -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


@contextlib.contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """All but so many of this process are taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count() + 32, before[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_command_without_descriptors_leaks_none_here_or_in_the_keeper(
    server: LoopbackSshd, folder: Path
) -> None:
    with closing(to(server, keep=60)) as far:
        far.run(["true"])
        (path,), (keeper,) = socket_paths(), keepers(folder)
        here, there = count(), count(keeper)
        failures = []  # held, and with them what their frames hold
        for left in range(6):
            with descriptors_left(left):
                link = client.find(path)
                try:
                    if link is not None:
                        link.open(b"true").close()
                except Exception as error:
                    failures.append(error)
                finally:
                    if link is not None:
                        link.close()
        assert len(failures) >= 3
        assert count() == here
        until(lambda: count(keeper) <= there, seconds=10)
        assert far.run(["echo", "here"]).text == "here\n"


def test_descriptors_that_are_no_sockets_are_closed(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        far.run(["true"])
        (path,), (keeper,) = socket_paths(), keepers(folder)
        there = count(keeper)
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as guest, Path("/dev/null").open() as null:
                guest.connect(str(path))
                messages.send(guest, {"want": "run"}, [null.fileno(), null.fileno()])
                assert guest.recv(1) == b""
        until(lambda: count(keeper) <= there, seconds=10)
