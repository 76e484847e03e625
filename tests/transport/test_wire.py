"""What makes the connection fast, and how a command's end is told, seen on a real connection."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from paramiko import Message
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF

from clusterkit.transport.connection import Connection
from clusterkit.transport.jump import Road, travel
from clusterkit.transport.questions import ask_on_terminal
from clusterkit.transport.wire import AUTH_SECONDS
from tests.doubles.dialog_server import DialogServer, Factor
from tests.doubles.loopback_sshd import LoopbackSshd

SETTLED_SECONDS = 1.0
"""By then the server has forgotten a closed channel."""


@pytest.fixture(scope="module")
def road(sshd: LoopbackSshd) -> Iterator[Road]:
    with closing(travel(sshd.alias, ask=ask_on_terminal, config=sshd.ssh_config)) as open_road:
        yield open_road


def test_the_cheap_cipher_is_negotiated(road: Road) -> None:
    assert road.wire.remote_cipher == road.wire.local_cipher == "aes128-gcm@openssh.com"
    assert road.wire.remote_compression == "none"


def test_small_packets_leave_at_once(road: Road) -> None:
    assert road.wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_person_has_time_to_find_the_phone(road: Road) -> None:
    assert road.wire.auth_timeout == AUTH_SECONDS == 600


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "PIPE"])
def test_exit_signals_are_kept(road: Road, name: str) -> None:
    channel = road.wire.open_session()
    channel.exec_command(f"kill -{name} $$")
    assert channel.recv_exit_status() == -signal.Signals[f"SIG{name}"]


def test_exit_statuses_still_come(road: Road) -> None:
    channel = road.wire.open_session()
    channel.exec_command("exit 77")
    assert channel.recv_exit_status() == 77


def test_a_server_that_says_why_it_ends_the_connection(tmp_path: Path) -> None:
    with closing(DialogServer(tmp_path / "server", [Factor("publickey")])) as server:
        road = travel(server.alias, ask=ask_on_terminal, config=server.ssh_config)
        with closing(Connection(road)) as connection:
            assert (connection.alive, connection.why) == (True, None)
            server.say_goodbye("maintenance at 6")
            road.wire.join(60)
            assert (connection.alive, connection.why) == (False, "maintenance at 6")


@pytest.mark.parametrize("late", [cMSG_CHANNEL_EOF, cMSG_CHANNEL_DATA])
def test_what_comes_too_late_for_a_channel_hurts_no_other(road: Road, late: bytes) -> None:
    """A thread of paramiko's that was held up between making a message and sending it."""
    channel = road.wire.open_session()
    channel.exec_command("true")
    assert channel.recv_exit_status() == 0
    message = Message()
    message.add_byte(late)
    message.add_int(channel.remote_chanid)
    if late == cMSG_CHANNEL_DATA:
        message.add_string("late")
    channel.close()
    time.sleep(SETTLED_SECONDS)
    channel.transport._send_user_message(message)
    after = road.wire.open_session()
    after.exec_command("cat; echo end")
    after.shutdown_write()
    assert after.makefile().read() == b"end\n"
    assert road.wire.is_active()


def test_a_late_message_would_end_the_connection(sshd: LoopbackSshd) -> None:
    """Why `_Ordered` is there; when this fails, OpenSSH has become kinder."""
    with closing(travel(sshd.alias, ask=ask_on_terminal, config=sshd.ssh_config)) as own:
        channel = own.wire.open_session()
        channel.exec_command("true")
        assert channel.recv_exit_status() == 0
        channel.close()
        time.sleep(SETTLED_SECONDS)
        message = Message()
        message.add_byte(cMSG_CHANNEL_EOF)
        message.add_int(channel.remote_chanid)
        own.wire._send_user_message(message)
        own.wire.join(60)
        assert not own.wire.is_active()
        assert "nonexistent channel" in str(own.wire.goodbye)
