"""When a kept login ends, and that whoever waits is told why."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.base import SyncOptions
from clusterkit.transport.factory import connect
from clusterkit.transport.kept import client
from clusterkit.transport.kept.folder import socket_paths
from clusterkit.transport.questions import Question
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import Answers
from tests.transport.kept.commands import says, to, until
from tests.transport.runtime import keepers

pytestmark = pytest.mark.slow  # each test starts a keeper


def test_it_ends_when_nobody_comes(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=0.5)) as far:
        assert keepers(folder)
        far.run(["sleep", "1.5"])  # a command that runs is no idleness
        assert far.run(["echo", "here"]).text == "here\n"
    until(lambda: not keepers(folder))
    assert socket_paths() == []
    until(lambda: not server.sessions())
    assert server.accepted_logins() == 1


def test_logout_ends_it_and_tells_whoever_waits(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        assert [client.end(path) for path in socket_paths()] == ["node"]
        with pytest.raises(TransportError, match="the connection to node died: it was ended by `clusterkit"):
            next(lines)
        until(lambda: not keepers(folder))
        assert far.run(["echo", "again"]).text == "again\n"  # over a login of its own
    assert (socket_paths(), server.accepted_logins()) == ([], 2)


def test_a_connection_that_dies_ends_it(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        server.drop_connections()
        with pytest.raises(TransportError, match="the connection to node died: the server or the network"):
            next(lines)
    until(lambda: not keepers(folder))
    assert says(to(server)) == "here\n"


def test_a_killed_keeper_is_no_obstacle(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        (pid,) = keepers(folder)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="the connection to node died: the background session ended"):
            next(lines)
    assert len(socket_paths()) == 1  # stale
    assert says(to(server)) == "here\n"
    assert says(to(server, keep=60)) == "here\n"
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 3


def test_a_transfer_outlives_its_keeper(server: LoopbackSshd, folder: Path, here: Path, there: Path) -> None:
    data = os.urandom(8_000_000)
    (here / "big").write_bytes(data)

    def kill() -> None:
        until(lambda: sum(path.stat().st_size for path in there.glob(".big*")) > 3_000_000)
        os.kill(keepers(folder)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    with closing(to(server, keep=60)) as far:
        killer.start()
        done = far.push(here, str(there), options=SyncOptions(bandwidth_limit=4_000_000))
        killer.join()
    assert (there / "big").read_bytes() == data
    assert done.bytes < len(data) - 2_000_000
    assert server.accepted_logins() == 2


def test_ctrl_c_at_the_question_leaves_nothing(serve: Callable[..., CodeSshd], folder: Path) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(question: Question) -> list[str]:
        raise Interrupted

    server = serve()
    with pytest.raises(Interrupted):
        connect("node", ssh_config=server.ssh_config, keep=60, ask=interrupt)
    until(lambda: not keepers(folder))
    assert (socket_paths(), server.accepted_logins()) == ([], 0)


def test_a_refused_login_says_what_it_always_says(serve: Callable[..., CodeSshd], folder: Path) -> None:
    server = serve()
    with pytest.raises(
        TransportError, match=r"refuses to log in .* keyboard-interactive \(3 times\)"
    ) as caught:
        to(server, keep=60, ask=Answers("1", "2", "3"))
    assert caught.value.hint
    assert caught.value.hint.startswith("stopped after 3 wrong answers")
    until(lambda: not keepers(folder))


def test_only_a_socket_that_nobody_listens_at_is_deserted(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert not client.deserted(path)  # busy, hung, or of another version
    assert client.deserted(path)
    assert not client.deserted(tmp_path / "none")
