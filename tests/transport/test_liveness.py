"""A dead link is noticed; a slow one, or one with a busy pipe, is left alone."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.connection import Connection, Liveness
from clusterkit.transport.session import Session
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import connection


class Link:
    """A relay to a server that can be cut: bytes vanish, and neither side is told."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        other = {near: far, far: near}
        with near, far:
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    try:
                        data = ready.recv(1 << 16)
                        if not data:
                            return
                        if not self.cut.is_set():
                            other[ready].sendall(data)
                    except OSError:
                        return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def link(sshd: LoopbackSshd) -> Iterator[Link]:
    with closing(Link(sshd.port)) as relay:
        yield relay


@pytest.fixture
def config(link: Link, sshd: LoopbackSshd, tmp_path: Path) -> Path:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(link.port)))
    path = tmp_path / "ssh_config"
    path.write_text(sshd.host_block(lines=[f"Port {link.port}", f"UserKnownHostsFile {known}"]))
    return path


@pytest.mark.slow
def test_a_cut_link_ends_what_waits_on_it(link: Link, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.2, dead_seconds=0.8)
        session = Session(Connection(far.wire, liveness), ["sleep", "60"], where="node", login_shell=False)
        session.start()
        link.cut.set()
        assert list(session.output()) == []
        with pytest.raises(TransportError, match=r"the connection to node died: no answer for \d+ s"):
            session.wait()


@pytest.mark.slow
def test_a_quiet_link_that_answers_lives(link: Link, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=2.0)
        time.sleep(3.0)
        assert (far.wire.is_active(), liveness.why) == (True, None)
        liveness.stop()


@pytest.mark.slow
def test_data_counts_as_a_sign_of_life(link: Link, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=2.0)
        link.cut.set()  # no probe is answered from here on
        for _ in range(30):
            time.sleep(0.1)
            liveness.heard()
        assert far.wire.is_active()


def test_stopping_ends_the_watch(link: Link, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=0.2)
        liveness.stop()
        link.cut.set()
        time.sleep(0.8)
        assert (far.wire.is_active(), liveness.why) == (True, None)
