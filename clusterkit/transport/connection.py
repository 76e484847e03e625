"""A connection of this process, over paramiko: watched, with a channel for every command."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import paramiko

from clusterkit.transport.known_hosts import HostKeyVerdict, read
from clusterkit.transport.link import CHUNK, ChannelRefusedError, DownError, Screen
from clusterkit.transport.login import login
from clusterkit.transport.questions import Ask
from clusterkit.transport.resolve import HostConfig
from clusterkit.transport.wire import Wire

_PACKET = 1 << 15
"""What paramiko sends at once; slicing off more would copy the rest each time."""
_OPEN_SECONDS = 30.0
_BUSY_SECONDS = 10.0
_BUSY_PAUSE = 0.05
_PROBE_SECONDS = 5.0
_DEAD_SECONDS = 20.0
_NO_STATUS = -1
"""What paramiko gives for a command whose exit status never came."""
_BROKEN = (EOFError, paramiko.SSHException)
"""What paramiko raises where a message can no longer be sent."""
_ENDED = (EOFError, ConnectionResetError, BrokenPipeError)
"""How a connection that the other side has ended looks here; which of them is a matter of timing."""


class Liveness:
    """Watches one connection, and closes it once it is dead, so that all who wait on it wake up.

    TCP alone may take a quarter of an hour to notice, and paramiko's keepalive never waits for an answer.
    Here a probe that every SSH server answers goes out regularly; any sign of life counts as an answer.
    """

    def __init__(
        self,
        wire: paramiko.Transport,
        *,
        probe_seconds: float = _PROBE_SECONDS,
        dead_seconds: float = _DEAD_SECONDS,
    ) -> None:
        self._wire = wire
        self._probe_seconds = probe_seconds
        self._dead_seconds = dead_seconds
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self.why: str | None = None
        """Why the connection was given up, once it was."""
        for work in (self._probe, self._watch):  # global_request has no time limit: it needs its own thread
            threading.Thread(target=work, name=f"clusterkit-{work.__name__}", daemon=True).start()

    def heard(self) -> None:
        """Data moved. A saturated link delays probes, and is not dead."""
        self._heard = time.monotonic()

    def stop(self) -> None:
        """Stops watching."""
        self._stop.set()

    def _probe(self) -> None:
        while self._wire.is_active():
            if self._stop.wait(self._probe_seconds):
                return
            try:
                self._wire.global_request("keepalive@openssh.com", wait=True)
            except (paramiko.SSHException, OSError, EOFError):
                return  # the wire is down, which every user of it sees by itself
            if self._wire.is_active():  # a refusal is an answer too
                self.heard()

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self._dead_seconds / 4)) and self._wire.is_active():
            silence = time.monotonic() - self._heard
            if silence > self._probe_seconds + self._dead_seconds:
                self.why = f"no answer for {silence:.0f} s"
                self._wire.close()


class Connection:
    """Implements `Link` over paramiko."""

    def __init__(self, wire: Wire, liveness: Liveness | None = None) -> None:
        self.wire = wire
        self.liveness = liveness or Liveness(wire)

    @classmethod
    def open_to(cls, host: HostConfig, sock: socket.socket, *, ask: Ask) -> Connection:
        """Checks the host's key and logs in.

        Args:
            host: where to.
            sock: connected to it; closed with the connection, or when the login fails.
            ask: answers the questions.

        Raises:
            TransportError: the host cannot be trusted, or refuses the login.
        """
        try:
            verdict = HostKeyVerdict(host, read(host.known_hosts))
            wire = Wire(sock, host_key_algorithms=verdict.algorithms, timeout=host.connect_timeout)
            login(wire, host, verdict, ask)
        except BaseException:
            sock.close()
            raise
        return cls(wire)

    @property
    def alive(self) -> bool:
        """See `Link.alive`."""
        return self.wire.is_active()

    @property
    def why(self) -> str | None:
        """See `Link.why`."""
        wire = self.wire
        if self.liveness.why or wire.is_active():
            return self.liveness.why
        error = wire.saved_exception
        if wire.goodbye or error is None or isinstance(error, _ENDED):
            return wire.goodbye or None
        return getattr(error, "strerror", None) or str(error)

    def open(self, command: bytes, screen: Screen | None = None) -> ParamikoChannel:
        """See `Link.open`."""
        started = False
        try:
            channel = _open_channel(self.wire)
            if screen is not None:
                channel.get_pty(screen.kind, screen.columns, screen.rows)
            started = True
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not self.alive:
                raise DownError(self.why or "", started=started) from error
            raise ChannelRefusedError(str(error) or type(error).__name__) from error
        return ParamikoChannel(channel, self.liveness)

    def close(self) -> None:
        """See `Link.close`."""
        self.liveness.stop()
        self.wire.close()


class ParamikoChannel:
    """Implements `Channel` over paramiko; every byte counts as a sign of life."""

    def __init__(self, channel: paramiko.Channel, liveness: Liveness) -> None:
        self._channel, self._liveness = channel, liveness

    def send(self, data: bytes) -> None:
        """See `Channel.send`."""
        start = 0
        while start < len(data):
            try:
                sent = self._channel.send(data[start : start + _PACKET])
            except _BROKEN as error:
                raise ConnectionAbortedError("the connection died") from error
            if sent == 0:
                raise BrokenPipeError("the remote command has closed its input")
            self._liveness.heard()
            start += sent

    def end_input(self) -> None:
        """See `Channel.end_input`."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def receive(self, timeout: float | None) -> bytes:
        """See `Channel.receive`."""
        self._channel.settimeout(timeout)
        try:
            data = self._channel.recv(CHUNK)
        except _BROKEN:  # reading makes room, which the other side is told
            return b""
        if data:
            self._liveness.heard()
        return data

    def receive_error(self) -> bytes:
        """See `Channel.receive_error`."""
        while not self._channel.closed or self._channel.recv_stderr_ready():
            try:
                return self._channel.recv_stderr(CHUNK)
            except TimeoutError:
                continue  # `receive` sets its limit for the whole channel
            except _BROKEN:
                break
        return b""

    def resize(self, screen: Screen) -> None:
        """See `Channel.resize`."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self._channel.resize_pty(screen.columns, screen.rows)

    def wait(self, timeout: float | None) -> int | None:
        """See `Channel.wait`."""
        if not self._channel.status_event.wait(timeout):
            raise TimeoutError
        status = self._channel.exit_status
        return None if status == _NO_STATUS else status

    def close(self) -> None:
        """See `Channel.close`."""
        with contextlib.suppress(OSError, *_BROKEN):
            self._channel.close()


def _open_channel(wire: Wire) -> paramiko.Channel:
    """Opens a channel, waiting for one if need be: sshd counts an ended command until it has reaped it."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return wire.open_session(timeout=_OPEN_SECONDS)
        except paramiko.SSHException:
            if not wire.is_active() or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_PAUSE)
