"""An SSH server (paramiko's) that asks whatever a test wants, also what no PAM module would.

It logs in and runs nothing: commands get no answer but their exit status 0.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_PARTIALLY_SUCCESSFUL,
    AUTH_SUCCESSFUL,
    cMSG_DISCONNECT,
)

from tests.doubles.loopback_sshd import make_key


@dataclass(frozen=True)
class Ask:
    """One keyboard-interactive request, and the answers that let it pass."""

    prompts: tuple[tuple[str, bool], ...]
    answers: tuple[str, ...]
    title: str = ""
    instructions: str = ""


@dataclass
class Factor:
    """One thing a login needs: `publickey`, `password` or `keyboard-interactive`, in this order."""

    method: str
    asks: Sequence[Ask] = ()
    password: str = ""


@dataclass
class Record:
    """What clients have tried."""

    attempts: list[str] = field(default_factory=list)
    logins: int = 0


class _Dialog(paramiko.ServerInterface):
    def __init__(self, factors: Sequence[Factor], key: paramiko.PKey, record: Record, banner: str) -> None:
        self._left, self._key, self._record, self._banner = list(factors), key, record, banner
        self._asks: list[Ask] = []

    def get_banner(self) -> tuple[str, str] | tuple[None, None]:
        return (self._banner, "en") if self._banner else (None, None)

    def get_allowed_auths(self, username: str) -> str:
        return self._left[0].method

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return self._passed("publickey", key.asbytes() == self._key.asbytes())

    def check_auth_password(self, username: str, password: str) -> int:
        return self._passed("password", password == self._left[0].password)

    def check_auth_interactive(self, username: str, submethods: str) -> int | paramiko.InteractiveQuery:
        if self._left[0].method != "keyboard-interactive":
            return AUTH_FAILED
        self._asks = list(self._left[0].asks)
        return self._query()

    def check_auth_interactive_response(self, responses: list[str]) -> int | paramiko.InteractiveQuery:
        ask = self._asks.pop(0)
        if tuple(responses) != ask.answers:
            return self._passed("keyboard-interactive", good=False)
        return self._query() if self._asks else self._passed("keyboard-interactive", good=True)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=lambda: (channel.send_exit_status(0), channel.close()), daemon=True).start()
        return True

    def _query(self) -> paramiko.InteractiveQuery:
        ask = self._asks[0]
        return paramiko.InteractiveQuery(ask.title, ask.instructions, *ask.prompts)

    def _passed(self, method: str, good: bool) -> int:
        self._record.attempts.append(f"{method} {'good' if good else 'bad'}")
        if not good or self._left[0].method != method:
            return AUTH_FAILED
        self._left.pop(0)
        if self._left:
            return AUTH_PARTIALLY_SUCCESSFUL
        self._record.logins += 1
        return AUTH_SUCCESSFUL


class DialogServer:
    """Starts in the constructor, on a free loopback port; `close` ends it."""

    def __init__(
        self, folder: Path, factors: Sequence[Factor], *, alias: str = "asks", banner: str = ""
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.alias, self.record = alias, Record()
        self.key = make_key(folder / "id")
        self._factors, self._banner = factors, banner
        self._host_key = paramiko.PKey.from_path(make_key(folder / "host_key"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[paramiko.Transport] = []
        self.ssh_config = folder / "ssh_config"
        known_hosts = folder / "known_hosts"
        known_hosts.write_text(f"[127.0.0.1]:{self.port} ssh-ed25519 {self._host_key.get_base64()}\n")
        self.ssh_config.write_text(
            f"Host {alias}\n  HostName 127.0.0.1\n  Port {self.port}\n  User me\n  IdentityFile {self.key}\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile none\n"
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        user_key = paramiko.PKey.from_path(self.key)
        with contextlib.suppress(OSError, paramiko.SSHException, EOFError):  # closed, or a client that left
            while True:
                connection, _ = self._listener.accept()
                transport = paramiko.Transport(connection)
                transport.add_server_key(self._host_key)
                self._open.append(transport)
                dialog = _Dialog(self._factors, user_key, self.record, self._banner)
                transport.start_server(server=dialog, event=threading.Event())

    def drop_connections(self) -> None:
        """End every connection; the server goes on listening."""
        for transport in self._open:
            transport.close()

    def say_goodbye(self, words: str) -> None:
        """End every connection as a server does that gives its reason (RFC 4253, 11.1)."""
        for transport in self._open:
            message = paramiko.Message()
            message.add_byte(cMSG_DISCONNECT)
            message.add_int(2)
            message.add_string(words)
            message.add_string("en")
            transport._send_message(message)  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the server and its connections."""
        _stop(self._listener, self._thread)
        self.drop_connections()


class SilentServer:
    """Accepts connections and does something rude with them."""

    def __init__(self, behaviour: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._behaviour = behaviour
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._kept.append(connection)
                self._behaviour(connection)

    def close(self) -> None:
        """End it."""
        _stop(self._listener, self._thread)
        for connection in self._kept:
            connection.close()


def _stop(listener: socket.socket, thread: threading.Thread) -> None:
    """Close a listener another thread waits on: closing alone would leave it accepting."""
    with contextlib.suppress(OSError):  # macOS: not connected
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)
