"""One command on one channel of an open connection: streams kept apart, noise removed, its end told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import paramiko

from clusterkit.errors import TransportError
from clusterkit.transport import remote_shell
from clusterkit.transport.liveness import Liveness
from clusterkit.transport.wire import Wire

CHUNK = 1 << 18
_PACKET = 1 << 15
"""What paramiko sends at once; slicing off more would copy the rest each time."""
_OPEN_SECONDS = 30.0
_BUSY_SECONDS = 10.0
_BUSY_PAUSE = 0.05
_END_SECONDS = 5.0
_NO_STATUS = -1
"""What paramiko gives for a command whose exit status never came."""

_END_SCRIPT = """
kill -s TERM -- "-$1" 2>/dev/null || kill -s TERM "$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5; do
    kill -s 0 -- "-$1" 2>/dev/null || exit 0
    sleep 0.1
done
kill -s KILL -- "-$1" 2>/dev/null
exit 0
"""


class TimeUp(Exception):  # noqa: N818 - not an error by itself
    """The deadline of a session has passed."""


class Session:
    """A remote command, running since the constructor has returned; `close` it in any case."""

    def __init__(
        self,
        wire: Wire,
        liveness: Liveness,
        argv: Sequence[str],
        *,
        where: str,
        login_shell: bool,
        timeout: float | None = None,
        prepare: str = "",
    ) -> None:
        """Open the channel and start the command.

        Args:
            wire: the connection.
            liveness: told about every byte, asked why a connection died.
            argv: the command.
            where: the machine's name for messages.
            login_shell: read the login profiles first.
            timeout: seconds until `output` and `wait` raise TimeUp.
            prepare: sh commands to run before argv.

        Raises:
            TransportError: the connection is dead, or the server refuses another channel.
        """
        self.argv = tuple(argv)
        self._wire, self._liveness, self._where, self._login_shell = wire, liveness, where, login_shell
        self._deadline = None if timeout is None else time.monotonic() + timeout
        marker = remote_shell.new_marker()
        self._out, self._err = remote_shell.Guard(marker), remote_shell.Guard(marker)
        self._words = bytearray()
        command = remote_shell.wrap(argv, marker, login_shell=login_shell, prepare=prepare)
        try:
            self._channel = _open_channel(wire)
            self._channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(error) from error
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def feed(self, data: bytes) -> None:
        """Send all of standard input, in the background where it is more than nothing."""
        if data:
            threading.Thread(target=self._feed, args=(data,), daemon=True).start()
        else:
            self.end_input()

    def send(self, data: bytes) -> None:
        """Send a piece of standard input. Raises OSError when the command no longer listens."""
        start = 0
        while start < len(data):
            sent = self._channel.send(data[start : start + _PACKET])
            if sent == 0:
                raise BrokenPipeError("the remote command has closed its input")
            self._liveness.heard()
            start += sent

    def end_input(self) -> None:
        """Let the command see the end of its standard input."""
        with contextlib.suppress(OSError, EOFError):  # it has ended already
            self._channel.shutdown_write()

    def output(self) -> Iterator[bytes]:
        """Standard output as it comes.

        Raises:
            TimeUp: the deadline has passed.
        """
        while data := self._receive():
            self._liveness.heard()
            if clean := self._out.feed(data):
                yield clean

    def wait(self) -> int:
        """The exit status, once standard output has ended; minus the signal number for a signal.

        Raises:
            TimeUp: the deadline has passed.
            TransportError: the connection died, or the command was never started.
        """
        self._listener.join(self._left())
        if self._listener.is_alive() or not self._channel.status_event.wait(self._left()):
            raise TimeUp
        status = self._channel.exit_status
        if status == _NO_STATUS and (not self._wire.is_active() or self._out.pid is not None):
            raise self._lost(EOFError("its channel was closed"))
        if self._out.pid is None:
            raise self._never_started(status)
        return status

    def error_bytes(self) -> bytes:
        """Standard error; complete after `wait`."""
        return bytes(self._words)

    def close(self) -> None:
        """Close the channel. A command that reads or writes will notice; others run on: see `end`."""
        self._channel.close()

    def end(self) -> None:
        """End the command itself, as far as the connection still allows.

        sshd makes every command the leader of a session, so its group has its process id.
        """
        self.close()
        pid = self._out.pid or self._err.pid
        if pid is None or not self._wire.is_active():
            return
        with contextlib.suppress(TransportError, TimeUp):
            killer = Session(
                self._wire,
                self._liveness,
                ["sh", "-c", _END_SCRIPT, "sh", str(pid)],
                where=self._where,
                login_shell=False,
                timeout=_END_SECONDS,
            )
            with contextlib.closing(killer):
                killer.end_input()
                killer.wait()

    def _lost(self, error: BaseException) -> TransportError:
        if not self._wire.is_active():
            why = self._liveness.why or "the server or the network ended it"
            return TransportError(
                f"the connection to {self._where} died: {why}",
                hint="Run the same command again; what is done is not done twice.",
            )
        if isinstance(error, paramiko.SSHException):
            return TransportError(
                f"{self._where} refuses another command on this connection: {error}",
                hint="The server allows few sessions at a time (MaxSessions); end other commands first.",
            )
        return TransportError(
            f"{self.argv[0]} was cut off on {self._where}: {str(error) or type(error).__name__}",
            hint="Run the same command again.",
        )

    def _never_started(self, status: int) -> TransportError:
        said = self._err.noise or self._out.noise
        words = f": {said.splitlines()[-1].strip()}" if said else ""
        return TransportError(
            f"{self._where} did not run the command (status {status}){words}",
            hint="A shell start-up file there may end or fail, or the account is restricted: try it by hand.",
        )

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _receive(self) -> bytes:
        left = self._left()
        if left == 0.0:
            raise TimeUp
        self._channel.settimeout(left)
        try:
            return self._channel.recv(CHUNK)
        except TimeoutError:
            raise TimeUp from None

    def _feed(self, data: bytes) -> None:
        try:
            self.send(data)
        except OSError:
            return  # the command ended without reading it all, or its time is up; `wait` says which
        self.end_input()

    def _listen(self) -> None:
        while not self._channel.closed or self._channel.recv_stderr_ready():
            try:
                data = self._channel.recv_stderr(CHUNK)
            except TimeoutError:
                continue  # `_receive` sets its deadline for the whole channel
            if not data:
                return
            self._words += self._err.feed(data)


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
