"""The control socket of an OpenSSH master: asks it for sessions, for a sign of life and for its end.

Source: OpenSSH's PROTOCOL.mux, version 4, which every OpenSSH since 5.4 speaks. Descriptors are handed
over one by one, each with a single NUL byte, as ssh's own monitor_fdpass.c does.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from enum import IntEnum
from pathlib import Path

_VERSION = 4
_MAX_BYTES = 1 << 18
_NO_ESCAPE = 0xFFFFFFFF
_REQUEST = 0
"""Number of the request; one connection carries one at a time."""


class Message(IntEnum):
    """Types of messages."""

    HELLO = 0x00000001
    NEW_SESSION = 0x10000002
    ALIVE_CHECK = 0x10000004
    TERMINATE = 0x10000005
    OK = 0x80000001
    PERMISSION_DENIED = 0x80000002
    FAILURE = 0x80000003
    EXIT = 0x80000004
    ALIVE = 0x80000005
    SESSION_OPENED = 0x80000006
    TTY_REFUSED = 0x80000008


class RefusedError(Exception):
    """The master does not do what was asked; the text is its own."""


class ControlSocket:
    """One connection to a master. Carries one session, or requests one after another."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        """Connects and exchanges greetings.

        Args:
            path: of the control socket.
            timeout: seconds for each answer, until `answer` is given another limit.

        Raises:
            OSError: nobody listens there, or another user does.
            EOFError: the master has ended.
            ValueError: something else answers there.
        """
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(str(path))
            if not _is_mine(self._socket):
                raise PermissionError(f"{path} is served by another user")
            self._send(struct.pack(">II", Message.HELLO, _VERSION))
            kind, body = self._receive()
            if kind != Message.HELLO or struct.unpack_from(">I", body) != (_VERSION,):
                raise ValueError(f"{path} speaks another protocol")
        except BaseException:
            self._socket.close()
            raise

    def process(self) -> int:
        """Returns the master's process id. Errors as for the constructor."""
        return self._ask(Message.ALIVE_CHECK, Message.ALIVE)

    def terminate(self) -> None:
        """Ends the master and everything that runs over it. Errors as for the constructor."""
        self._ask(Message.TERMINATE, Message.OK)

    def open_session(
        self, command: bytes, descriptors: tuple[int, int, int], *, terminal: str | None
    ) -> None:
        """Starts a command with standard input, output and error.

        Args:
            command: without a NUL.
            descriptors: the master gets copies of them.
            terminal: the value of TERM where the command shall have a terminal, whose modes and size
                are those of the first descriptor's.

        Raises:
            RefusedError: the server opens no further session, or the master's user forbids it.
            OSError, EOFError, ValueError: the master has ended or does not answer.
        """
        flags = struct.pack(">IIII", terminal is not None, False, False, False)  # no X11, agent, subsystem
        words = _string((terminal or "").encode()) + _string(command)
        request = struct.pack(">II", Message.NEW_SESSION, _REQUEST) + _string(b"") + flags
        self._send(request + struct.pack(">I", _NO_ESCAPE) + words)
        for descriptor in descriptors:
            socket.send_fds(self._socket, [b"\0"], [descriptor])
        kind, body = self._receive()
        if kind != Message.SESSION_OPENED:
            raise _refusal(kind, body)

    def exit_status(self, timeout: float | None) -> int | None:
        """Returns the exit status of this connection's session; None where the master closed it without one.

        Raises:
            TimeoutError: it has not ended within so many seconds.
        """
        self._socket.settimeout(timeout)
        try:
            while True:
                kind, body = self._receive()
                if kind == Message.EXIT:
                    return int(struct.unpack_from(">I", body, 4)[0])
        except TimeoutError:
            raise
        except (OSError, EOFError, ValueError):
            return None

    def hung_up(self) -> bool:
        """Returns whether the master has ended."""
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)  # a master says nothing by itself
        return bool(ready.poll(0))

    def close(self) -> None:
        """Hangs up. Safe to call twice, and from another thread."""
        with contextlib.suppress(OSError):  # the master has hung up already
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._socket.close()

    def _ask(self, kind: Message, wanted: Message) -> int:
        self._send(struct.pack(">II", kind, _REQUEST))
        answer, body = self._receive()
        if answer != wanted:
            raise ValueError(str(_refusal(answer, body)))
        return int(struct.unpack_from(">I", body, 4)[0]) if len(body) >= 8 else 0

    def _send(self, message: bytes) -> None:
        self._socket.sendall(_string(message))

    def _receive(self) -> tuple[int, bytes]:
        (size,) = struct.unpack(">I", self._exactly(4))
        if not 4 <= size <= _MAX_BYTES:
            raise ValueError(f"a message of {size} bytes")
        data = self._exactly(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError("the master has ended")
            data += piece
        return bytes(data)


def _refusal(kind: int, body: bytes) -> RefusedError | ValueError:
    """Returns what an answer means that is not the one that was hoped for."""
    if kind not in (Message.PERMISSION_DENIED, Message.FAILURE):
        return ValueError(f"an answer of type {kind:#x}")
    return RefusedError(body[8:].decode("utf-8", "replace") or "no reason given")


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _is_mine(peer: socket.socket) -> bool:
    """Returns whether the other side runs as this user; the folder is the guard where no system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    answer = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", answer)
    return bool(uid == os.getuid())
