"""A connection that an OpenSSH master holds, as commands see it: each runs in a session of the master."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import termios
import time
import tty
from pathlib import Path

from clusterkit.transport.link import CHUNK, ChannelRefusedError, DownError, Screen
from clusterkit.transport.openssh.control import ControlSocket, RefusedError

_ANSWER_SECONDS = 5.0
_OPEN_SECONDS = 30.0
_BUSY_SECONDS = 10.0
_BUSY_PAUSE = 0.05
GONE = "the ssh process that holds it has ended"


class OpensshLink:
    """Implements `Link` over a master; while it is open, the master does not count as unused."""

    def __init__(self, path: Path, *, ends: bool = False) -> None:
        """Connects to a master.

        Args:
            path: of its control socket.
            ends: whether `close` ends the master.

        Raises:
            OSError, EOFError, ValueError: no master of this user's answers there.
        """
        self.path, self._ends = path, ends
        self._lease = ControlSocket(path, timeout=_ANSWER_SECONDS)
        try:
            self._process = self._lease.process()
        except BaseException:
            self._lease.close()
            raise
        self._why: str | None = None

    @property
    def alive(self) -> bool:
        """See `Link.alive`."""
        if self._why is None and self._lease.hung_up():
            self._why = GONE
        return self._why is None

    @property
    def why(self) -> str | None:
        """See `Link.why`."""
        return self._why

    def open(self, command: bytes, screen: Screen | None = None) -> OpensshChannel:
        """See `Link.open`. Waits for a session: sshd counts an ended command until it has reaped it."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                control = ControlSocket(self.path, timeout=_OPEN_SECONDS)
            except (OSError, EOFError, ValueError) as error:
                self._why = self._why or GONE
                raise DownError(self._why) from error
            try:
                return OpensshChannel(control, command, screen, self._process)
            except RefusedError as error:
                if time.monotonic() > deadline:
                    raise ChannelRefusedError(str(error)) from error
            except TimeoutError as error:
                self._why = f"no answer for {_OPEN_SECONDS:.0f} s"
                raise DownError(self._why, started=True) from error
            except (OSError, EOFError, ValueError) as error:
                self._why = self._why or GONE
                raise DownError(self._why, started=True) from error
            time.sleep(_BUSY_PAUSE)

    def answers(self, seconds: float) -> bool:
        """Returns whether the server runs a command in so many seconds; a master may not know it is alone."""
        try:
            channel = OpensshChannel(ControlSocket(self.path, timeout=seconds), b"true", None, self._process)
        except RefusedError:
            return True  # by the server, which is an answer
        except (OSError, EOFError, ValueError):
            return False
        channel.close()
        return True

    def end(self) -> None:
        """Ends the master, and with it everything that runs over it."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            self._lease.terminate()
        self._why = self._why or "it was ended"
        self._lease.close()

    def close(self) -> None:
        """See `Link.close`."""
        if self._ends and self._why is None:
            self.end()
        self._why = self._why or "it was closed"
        self._lease.close()


class OpensshChannel:
    """Implements `Channel`: the master reads and writes the far ends of these sockets. Closes `control`."""

    def __init__(
        self, control: ControlSocket, command: bytes, screen: Screen | None, master_process: int
    ) -> None:
        """Starts a command. Errors as of `ControlSocket.open_session`."""
        self._control, self._master_process = control, master_process
        self._status: tuple[int | None] | None = None
        with contextlib.ExitStack() as failed:
            failed.callback(control.close)
            self._output, far_output = _pair(failed)
            self._errors, far_errors = _pair(failed)
            self._input: socket.socket | None = None
            self._terminal: int | None = None
            if screen is None:
                self._input, far_input = _pair(failed)
                with far_input, far_output, far_errors:
                    far = far_input.fileno(), far_output.fileno(), far_errors.fileno()
                    control.open_session(command, far, terminal=None)
            else:
                self._terminal, far_terminal = pty.openpty()
                failed.callback(os.close, self._terminal)
                try:
                    _copy_modes(far_terminal)  # the terminal there gets the modes of this one
                    self._set_size(screen)
                    with far_output, far_errors:
                        far = far_terminal, far_output.fileno(), far_errors.fileno()
                        control.open_session(command, far, terminal=screen.kind)
                    tty.setraw(far_terminal)  # from here on every key passes as it is
                finally:
                    os.close(far_terminal)
            failed.pop_all()

    def send(self, data: bytes) -> None:
        """See `Channel.send`."""
        if self._input is not None:
            self._input.sendall(data)
            return
        left = memoryview(data)
        while left and self._terminal is not None:
            left = left[os.write(self._terminal, left) :]

    def end_input(self) -> None:
        """See `Channel.end_input`."""
        if self._input is not None:
            with contextlib.suppress(OSError):
                self._input.shutdown(socket.SHUT_WR)

    def receive(self, timeout: float | None) -> bytes:
        """See `Channel.receive`."""
        if timeout is not None:
            waiting = select.poll()
            waiting.register(self._output, select.POLLIN)
            if not waiting.poll(timeout * 1000):
                raise TimeoutError
        return _receive(self._output)

    def receive_error(self) -> bytes:
        """See `Channel.receive_error`."""
        return _receive(self._errors)

    def resize(self, screen: Screen) -> None:
        """See `Channel.resize`; a master looks at its sessions' terminals when it is told of a new size."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                self._set_size(screen)
                os.kill(self._master_process, signal.SIGWINCH)

    def wait(self, timeout: float | None) -> int | None:
        """See `Channel.wait`. OpenSSH does not pass on which signal has ended a command."""
        if self._status is None:
            self._status = (self._control.exit_status(timeout),)
        return self._status[0]

    def close(self) -> None:
        """See `Channel.close`."""
        self._control.close()
        for stream in (self._input, self._output, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)  # wakes a thread of ours that reads it
                stream.close()
        if self._terminal is not None:
            terminal, self._terminal = self._terminal, None
            os.close(terminal)

    def _set_size(self, screen: Screen) -> None:
        assert self._terminal is not None
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", screen.rows, screen.columns, 0, 0))


def _copy_modes(terminal: int) -> None:
    """Gives a terminal the modes of this process's own, where it has one."""
    with contextlib.suppress(termios.error):
        termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(0))


def _pair(failed: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, which are closed if what they are for fails; they may be closed before."""
    ours, far = socket.socketpair()
    failed.callback(ours.close)
    failed.callback(far.close)
    return ours, far


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK)
    except OSError:  # the master closed it while something of ours was unread, or we have closed it
        return b""
