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
from clusterkit.transport.wire import AUTH_SECONDS
from tests.doubles.dialog_server import DialogServer, Factor
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import connection

SETTLED_SECONDS = 1.0
"""By then the server has forgotten a closed channel."""


@pytest.fixture(scope="module")
def far(sshd: LoopbackSshd) -> Iterator[Connection]:
    with closing(connection(sshd)) as open_one:
        yield open_one


def test_the_cheap_cipher_is_negotiated(far: Connection) -> None:
    assert far.wire.remote_cipher == far.wire.local_cipher == "aes128-gcm@openssh.com"
    assert far.wire.remote_compression == "none"


def test_small_packets_leave_at_once(far: Connection) -> None:
    assert far.wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_person_has_time_to_find_the_phone(far: Connection) -> None:
    assert far.wire.auth_timeout == AUTH_SECONDS == 600


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "PIPE"])
def test_exit_signals_are_kept(far: Connection, name: str) -> None:
    channel = far.wire.open_session()
    channel.exec_command(f"kill -{name} $$")
    assert channel.recv_exit_status() == -signal.Signals[f"SIG{name}"]


def test_a_server_that_says_why_it_ends_the_connection(tmp_path: Path) -> None:
    with (
        closing(DialogServer(tmp_path / "server", [Factor("publickey")])) as server,
        closing(connection(server)) as far,
    ):
        assert (far.alive, far.why) == (True, None)
        server.say_goodbye("maintenance at 6")
        far.wire.join(60)
        assert (far.alive, far.why) == (False, "maintenance at 6")


@pytest.mark.slow
@pytest.mark.parametrize("late", [cMSG_CHANNEL_EOF, cMSG_CHANNEL_DATA])
def test_what_comes_too_late_for_a_channel_hurts_no_other(far: Connection, late: bytes) -> None:
    """A thread of paramiko's that was held up between making a message and sending it."""
    channel = far.wire.open_session()
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
    after = far.wire.open_session()
    after.exec_command("cat; echo end")
    after.shutdown_write()
    assert after.makefile().read() == b"end\n"
    assert far.wire.is_active()


@pytest.mark.slow
def test_a_late_message_would_end_the_connection(sshd: LoopbackSshd) -> None:
    """Why `_Ordered` is there; when this fails, OpenSSH has become kinder."""
    with closing(connection(sshd)) as own:
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
