"""After a connection has died: a new login where nobody need be asked, and nothing is run twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport import factory
from clusterkit.transport.connection import Liveness
from clusterkit.transport.factory import connect
from tests.doubles.dialog_server import DialogServer, Factor
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay
from tests.needs import needing
from tests.transport.answers import CODE, Answers
from tests.waiting import until


@pytest.fixture
@needing("sshd")
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackSshd]:
    monkeypatch.setattr(factory, "PAUSES", (0.0, 0.1, 0.3))
    with closing(LoopbackSshd(tmp_path / "sshd")) as running:
        yield running


@pytest.mark.slow
def test_the_next_command_rides_on_a_new_login(server: LoopbackSshd) -> None:
    told = Answers()
    with closing(connect("node", ssh_config=server.ssh_config, ask=told)) as far:
        for logins in (1, 2, 3):
            assert far.run(["echo", "here"]).text == "here\n"
            assert server.accepted_logins() == logins
            server.drop_connections()
            until(lambda: not server.sessions())
            until(lambda: not far._link.alive)  # this side has seen it too
    assert [one.instructions for one in told.questions] == [
        "the connection to node died (the server or the network ended it); logged in again."
    ] * 2


@pytest.mark.parametrize("end", [Relay.cut, Relay.reset])
def test_an_end_and_a_reset_are_told_alike(
    end: Callable[[Relay], None], server: LoopbackSshd, tmp_path: Path
) -> None:
    """A killed server sends either, depending on whether it had still something to read."""
    told = Answers()
    config = tmp_path / "config"
    with closing(Relay(server.port)) as relay:
        config.write_text(relay.host_block(server))
        with closing(connect("node", ssh_config=config, ask=told)) as far:
            end(relay)
            until(lambda: not far._link.alive)
            assert far.run(["echo", "here"]).text == "here\n"
    assert [one.instructions for one in told.questions] == [
        "the connection to node died (the server or the network ended it); logged in again."
    ]


def test_a_command_is_never_run_twice(server: LoopbackSshd, tmp_path: Path) -> None:
    count = tmp_path / "count"
    kill = f'echo once >> {count}; kill -9 "$PPID"; sleep 30'
    with closing(connect("node", ssh_config=server.ssh_config)) as far:
        with pytest.raises(TransportError, match="the connection to node died"):
            far.run(["sh", "-c", kill])
        assert far.run(["cat", str(count)]).text == "once\n"


@pytest.mark.slow
def test_a_link_that_died_unnoticed_has_run_nothing(
    server: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a laptop has slept between two commands: the first to come waits, and then runs, once."""
    monkeypatch.setattr(Liveness.__init__, "__kwdefaults__", {"probe_seconds": 0.5, "dead_seconds": 3.0})
    count = tmp_path / "count"
    config = tmp_path / "config"
    with closing(Relay(server.port)) as link:
        config.write_text(link.host_block(server))
        with closing(connect("node", ssh_config=config)) as far:
            link.silent.set()
            config.write_text(server.host_block())
            far.run(["sh", "-c", f"echo once >> {count}"])
    assert count.read_text() == "once\n"
    assert server.accepted_logins() == 2


@pytest.mark.slow
def test_reading_and_writing_go_on(server: LoopbackSshd, tmp_path: Path) -> None:
    """A start-up file kills the connection under the first command of each kind."""
    fuse = tmp_path / "fuse"
    (server.home / ".bashrc").write_text(f'[ -e {fuse} ] && rm {fuse} && kill -9 "$PPID"\n')
    with closing(connect("node", ssh_config=server.ssh_config)) as far:
        fuse.touch()
        far.write(str(tmp_path / "note"), b"note")
        fuse.touch()
        assert far.read(str(tmp_path / "note")) == b"note"
    assert not fuse.exists()
    assert server.accepted_logins() == 3


def test_a_host_that_stays_away(server: LoopbackSshd) -> None:
    with closing(connect("node", ssh_config=server.ssh_config)) as far:
        server.close()
        until(lambda: not far._link.alive)
        with pytest.raises(TransportError) as caught:
            far.run(["true"])
    assert caught.value.cause == (
        "the connection to node died (the server or the network ended it), and logging in again failed: "
        f"node (127.0.0.1:{server.port}) cannot be reached: Connection refused"
    )
    assert caught.value.hint == "run the same command again; nothing is done twice"


@pytest.mark.slow
def test_a_host_that_comes_back_in_time(server: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "PAUSES", (0.0, 0.2, 0.2, 2.0, 5.0, 10.0, 20.0))
    with closing(connect("node", ssh_config=server.ssh_config)) as far:
        server.close()
        until(lambda: not far._link.alive)
        threading.Timer(0.5, server.start).start()
        assert far.run(["echo", "back"]).text == "back\n"


def test_nobody_is_asked_in_the_middle_of_something(serve: Callable[..., DialogServer]) -> None:
    server = serve(Factor("publickey"), Factor("keyboard-interactive", [CODE]))
    ask = Answers("123456", "123456")
    with closing(connect(server.alias, ssh_config=server.ssh_config, ask=ask)) as far:
        server.drop_connections()
        until(lambda: not far._link.alive)
        with pytest.raises(TransportError, match=r"failed: me@asks asks for 'One-time code'"):
            far.run(["true"])
        assert len(ask.asked) == 1
        assert "keyboard-interactive bad" not in server.record.attempts
