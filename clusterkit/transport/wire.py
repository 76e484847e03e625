"""A paramiko transport set up for us: fast cipher first, no needless waits, exit signals and reasons kept.

It also mends a race of paramiko's that ends whole connections: see `_Ordered`.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST, cMSG_CHANNEL_CLOSE

AUTH_SECONDS = 600.0
"""A person looks for a phone and types; paramiko's own limit is 30 s."""

_FIRST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Halve the CPU time per byte; paramiko has them last."""

_IGNORED = logging.NullHandler()


def _handle_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Keeps the signal of an `exit-signal` request (RFC 4254, 6.10), which paramiko drops."""
    position = message.packet.tell()
    if message.get_text() == "exit-signal":
        message.get_boolean()
        name = message.get_text()
        number = getattr(signal, f"SIG{name}", None)
        if number is not None:
            channel.exit_status = -int(number)
            channel.status_event.set()
        return
    message.packet.seek(position)
    channel._handle_request(message)  # type: ignore[attr-defined]


class _Ordered:
    """A channel's way to its wire, on which nothing follows the channel's CLOSE.

    paramiko makes a message under a lock and sends it without: an end of input may leave after the
    CLOSE with which another thread has answered the command's end. OpenSSH's server then ends the whole
    connection, with everything that rides on it ("ieof packet referred to nonexistent channel").
    """

    def __init__(self, wire: Wire) -> None:
        self._wire, self._lock, self._closed = wire, threading.Lock(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def _send_user_message(self, message: paramiko.Message) -> None:
        with self._lock:
            if not self._closed:
                self._closed = message.packet.getbuffer()[:1] == cMSG_CHANNEL_CLOSE
                self._wire._send_user_message(message)  # type: ignore[attr-defined]


class _WirePrompt:
    """A TCP socket that acknowledges at once what comes first.

    OpenSSH's server turns Nagle off only when a session runs: before, its second small packet waits until the
    first is acknowledged, which Linux puts off for 40 ms. That would be the larger part of a first command.
    """

    _FIRST = 64
    """Receptions, for the kernel forgets it again; a download needs no more acknowledgements than usual."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._left = sock, self._FIRST if hasattr(socket, "TCP_QUICKACK") else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        data = self._sock.recv(size)
        if self._left > 0:
            self._left -= 1
            with suppress(OSError):  # it has been closed meanwhile
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


class Wire(paramiko.Transport):
    """See the module. Not yet started: `login` does that."""

    _channel_handler_table = {  # noqa: RUF012 - overrides paramiko's
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: _handle_request,
    }

    def __init__(self, sock: Any, *, host_key_algorithms: Sequence[str], timeout: float) -> None:
        """Prepares a connection.

        Args:
            sock: connected to the server.
            host_key_algorithms: asked for first.
            timeout: seconds for each step of the handshake.
        """
        if sock.family != socket.AF_UNIX:
            # without it Nagle and delayed acknowledgements cost 40 ms a command
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = _WirePrompt(sock)
        logger = logging.getLogger("paramiko")
        if _IGNORED not in logger.handlers:  # else its tracebacks reach standard error
            logger.addHandler(_IGNORED)
        super().__init__(sock)
        self.goodbye: str | None = None
        """What the server said when it ended the connection by itself."""
        self.auth_timeout = AUTH_SECONDS
        self.banner_timeout = self.handshake_timeout = timeout
        options = self.get_security_options()
        options.ciphers = _first(_FIRST_CIPHERS, options.ciphers)
        options.key_types = _first(host_key_algorithms, options.key_types)

    def open_channel(self, *arguments: Any, **options: Any) -> paramiko.Channel:
        """As paramiko's; the channel keeps the order of what it sends."""
        channel = super().open_channel(*arguments, **options)
        channel.transport = _Ordered(self)  # type: ignore[assignment]
        return channel

    def _parse_disconnect(self, message: paramiko.Message) -> None:
        """Keeps the words of a disconnect (RFC 4253, 11.1), which paramiko only logs."""
        position = message.packet.tell()
        message.get_int()
        self.goodbye = message.get_text()
        message.packet.seek(position)
        super()._parse_disconnect(message)  # type: ignore[misc]


def _first(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Returns the available names, the wanted ones in front."""
    front = [name for name in wanted if name in available]
    return front + [name for name in available if name not in front]
