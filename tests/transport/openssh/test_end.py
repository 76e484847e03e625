"""When a kept login ends, and that whoever waits is told why."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.base import SyncOptions
from clusterkit.transport.factory import connect
from clusterkit.transport.openssh import master
from clusterkit.transport.openssh.kept import socket_paths
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.openssh.commands import says, to
from tests.transport.runtime import masters
from tests.waiting import until

pytestmark = pytest.mark.slow  # each test starts a master


def test_it_ends_when_nobody_comes(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=1)) as far:
        assert masters(folder)
        far.run(["sleep", "2.5"])  # a command that runs is no idleness
        assert far.run(["echo", "here"]).text == "here\n"
    until(lambda: not masters(folder))
    assert socket_paths() == []
    until(lambda: not server.sessions())
    assert server.accepted_logins() == 1


def test_logout_ends_it_and_tells_whoever_waits(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        assert [master.end(path) for path in socket_paths()] == [True]
        with pytest.raises(TransportError, match="the connection to node died: the ssh process"):
            next(lines)
        until(lambda: not masters(folder))
        assert far.run(["echo", "again"]).text == "again\n"  # over a login of its own
    assert (socket_paths(), server.accepted_logins()) == ([], 2)


def test_a_connection_that_dies_ends_it(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        server.drop_connections()
        with pytest.raises(TransportError, match="the connection to node died: the ssh process"):
            next(lines)
    until(lambda: not masters(folder))
    assert says(to(server)) == "here\n"


def test_a_killed_master_is_no_obstacle(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        (pid,) = masters(folder)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="the connection to node died: the ssh process"):
            next(lines)
    assert len(socket_paths()) == 1  # stale
    assert says(to(server)) == "here\n"
    assert says(to(server, keep=60)) == "here\n"
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 3


def test_a_transfer_outlives_its_master(server: LoopbackSshd, folder: Path, here: Path, there: Path) -> None:
    data = os.urandom(8_000_000)
    (here / "big").write_bytes(data)

    def kill() -> None:
        until(lambda: sum(path.stat().st_size for path in there.glob(".big*")) > 3_000_000)
        os.kill(masters(folder)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    with closing(to(server, keep=60)) as far:
        killer.start()
        done = far.push(here, str(there), options=SyncOptions(bandwidth_limit=4_000_000))
        killer.join()
    assert (there / "big").read_bytes() == data
    assert done.bytes < len(data) - 2_000_000
    assert server.accepted_logins() == 2


def test_a_single_command_ends_its_master(server: LoopbackSshd, folder: Path) -> None:
    with closing(connect("node", ssh_config=server.ssh_config, wanted="openssh")) as far:
        assert far.run(["echo", "here"]).text == "here\n"
        assert (len(masters(folder)), socket_paths()) == (1, [])
    until(lambda: not masters(folder))
    until(lambda: not server.sessions())
    assert list((folder / "clusterkit").iterdir()) == []


def test_a_master_of_the_user_is_used_and_not_ended(server: LoopbackSshd, folder: Path) -> None:
    path = folder / "own"
    server.ssh_config.write_text(server.host_block(lines=[f"ControlPath {path}"]))
    ssh = ["ssh", "-F", str(server.ssh_config)]
    subprocess.run([*ssh, "-fNM", "node"], check=True, stderr=subprocess.DEVNULL)
    try:
        for _ in range(2):
            assert says(to(server)) == "here\n"
        assert says(to(server, keep=60)) == "here\n"
        assert (server.accepted_logins(), path.exists(), socket_paths()) == (1, True, [])
    finally:
        subprocess.run([*ssh, "-q", "-O", "exit", "node"], check=True, stderr=subprocess.DEVNULL)
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 2
