"""A connection of this process: a road, watched, with a channel for every command."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import paramiko

from clusterkit.transport.dial import Dialled
from clusterkit.transport.jump import Road, travel
from clusterkit.transport.link import CHUNK, ChannelRefusedError, DownError, Screen
from clusterkit.transport.liveness import Liveness
from clusterkit.transport.questions import Ask
from clusterkit.transport.wire import Wire

_PACKET = 1 << 15
"""What paramiko sends at once; slicing off more would copy the rest each time."""
_OPEN_SECONDS = 30.0
_BUSY_SECONDS = 10.0
_BUSY_PAUSE = 0.05
_NO_STATUS = -1
"""What paramiko gives for a command whose exit status never came."""
_BROKEN = (EOFError, paramiko.SSHException)
"""What paramiko raises where a message can no longer be sent."""


class Connection:
    """Implements `Link` over paramiko."""

    def __init__(self, road: Road, liveness: Liveness | None = None) -> None:
        self._road = road
        self.liveness = liveness or Liveness(road.wire)

    @classmethod
    def open_to(
        cls, host: str, *, ask: Ask, ssh_config: Path | None = None, dialled: Dialled | None = None
    ) -> Connection:
        """Log in; see `travel`.

        Raises:
            TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
        """
        return cls(travel(host, ask=ask, config=ssh_config, dialled=dialled))

    @property
    def alive(self) -> bool:
        """See `Link.alive`."""
        return self._road.wire.is_active()

    @property
    def why(self) -> str | None:
        """See `Link.why`."""
        wire = self._road.wire
        if self.liveness.why or wire.is_active():
            return self.liveness.why
        error = wire.saved_exception
        return wire.goodbye or (None if error is None or isinstance(error, EOFError) else str(error))

    def open(self, command: bytes, screen: Screen | None = None) -> ParamikoChannel:
        """See `Link.open`."""
        started = False
        try:
            channel = _open_channel(self._road.wire)
            if screen is not None:
                channel.get_pty(screen.kind, screen.columns, screen.rows)
            started = True
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not self.alive:
                raise DownError(self.why or "", started=started) from error
            raise ChannelRefusedError(str(error) or type(error).__name__) from error
        return ParamikoChannel(channel, self.liveness)

    def answers(self, seconds: float) -> bool:
        """Whether the server gives a sign of life within so many seconds from now."""
        return self.alive and self.liveness.answers(seconds)

    def end(self, why: str) -> None:
        """Close it, and let whoever waits on it learn why."""
        self.liveness.why = self.liveness.why or why
        self.close()

    def close(self) -> None:
        """See `Link.close`."""
        self.liveness.stop()
        self._road.close()


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
    """Open a channel, waiting for one if need be: sshd counts an ended command until it has reaped it."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return wire.open_session(timeout=_OPEN_SECONDS)
        except paramiko.SSHException:
            if not wire.is_active() or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_PAUSE)
