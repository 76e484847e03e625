"""A dead link is noticed; a slow one, or one with a busy pipe, is left alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.connection import Connection, Liveness
from clusterkit.transport.session import Session
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay
from tests.transport.answers import connection


@pytest.fixture
def link(sshd: LoopbackSshd) -> Iterator[Relay]:
    with closing(Relay(sshd.port)) as relay:
        yield relay


@pytest.fixture
def config(link: Relay, sshd: LoopbackSshd, tmp_path: Path) -> Path:
    path = tmp_path / "ssh_config"
    path.write_text(link.host_block(sshd))
    return path


@pytest.mark.slow
def test_a_cut_link_ends_what_waits_on_it(link: Relay, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.2, dead_seconds=0.8)
        session = Session(Connection(far.wire, liveness), ["sleep", "60"], where="node", login_shell=False)
        session.start()
        link.silent.set()
        assert list(session.output()) == []
        with pytest.raises(TransportError, match=r"the connection to node died: no answer for \d+ s"):
            session.wait()


@pytest.mark.slow
def test_a_quiet_link_that_answers_lives(link: Relay, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=2.0)
        time.sleep(3.0)
        assert (far.wire.is_active(), liveness.why) == (True, None)
        liveness.stop()


@pytest.mark.slow
def test_data_counts_as_a_sign_of_life(link: Relay, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=2.0)
        link.silent.set()  # no probe is answered from here on
        for _ in range(30):
            time.sleep(0.1)
            liveness.heard()
        assert far.wire.is_active()


def test_stopping_ends_the_watch(link: Relay, config: Path, sshd: LoopbackSshd) -> None:
    with closing(connection(sshd, config=config)) as far:
        liveness = Liveness(far.wire, probe_seconds=0.1, dead_seconds=0.2)
        liveness.stop()
        link.silent.set()
        time.sleep(0.8)
        assert (far.wire.is_active(), liveness.why) == (True, None)
