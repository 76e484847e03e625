"""A command's side of a kept login: a `Link` whose channels run in the keeper.

Each channel has a socket pair for standard input and output and one for standard error, handed to the
keeper as descriptors, so nothing is framed and each stream stops by itself when its reader is slow.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from dataclasses import astuple, dataclass
from pathlib import Path

from clusterkit.transport.kept import messages
from clusterkit.transport.link import CHUNK, ChannelRefusedError, DownError, Screen

_ANSWER_SECONDS = 8.0
"""The keeper may ask the server for a sign of life first."""
_OPEN_SECONDS = 60.0
"""Longer than the keeper itself waits for the server."""
GONE = "the background session ended"


@dataclass(frozen=True)
class Kept:
    """What a keeper says about itself."""

    host: str
    version: int


class KeptLink:
    """Implements `Link` over a keeper; the keeper does not count as idle while this is open."""

    def __init__(self, path: Path, lease: socket.socket, kept: Kept) -> None:
        self._path, self._lease, self.kept = path, lease, kept
        self._why: str | None = None
        self._looking = threading.Lock()

    @property
    def alive(self) -> bool:
        """See `Link.alive`."""
        with self._looking:
            if self._why is None:
                self._look()
            return self._why is None

    @property
    def why(self) -> str | None:
        """See `Link.why`."""
        return self._why

    def open(self, command: bytes, screen: Screen | None = None) -> KeptChannel:
        """See `Link.open`."""
        try:
            control = _connect(self._path)
        except OSError as error:
            self.lost(self._why or GONE)
            raise DownError(GONE) from error
        try:
            return KeptChannel(control, command, self, screen)
        except (OSError, EOFError, ValueError) as error:
            self.lost(self._why or GONE)
            raise DownError(GONE, started=True) from error

    def lost(self, why: str) -> None:
        """The keeper has said that the connection is dead."""
        self._why = why

    def close(self) -> None:
        """See `Link.close`; the keeper lives on."""
        self._why = self._why or "it was closed"
        self._lease.close()

    def _look(self) -> None:
        """The keeper speaks up on the lease only to say that it ends."""
        try:
            self._lease.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            self._why = str(messages.receive(self._lease)["lost"])
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError, KeyError):
            self._why = GONE


class KeptChannel:
    """Implements `Channel`; the keeper pumps. It closes `control`, also where it cannot be opened."""

    def __init__(
        self, control: socket.socket, command: bytes, link: KeptLink, screen: Screen | None = None
    ) -> None:
        self._control, self._link = control, link
        self._end: messages.Message | None = None
        with contextlib.ExitStack() as failed:
            failed.callback(control.close)
            self._stream, far_stream = _pair(failed)
            self._errors, far_errors = _pair(failed)
            with far_stream, far_errors:
                request = {
                    "want": "run",
                    "command": command.decode("latin-1"),
                    "screen": astuple(screen) if screen else None,
                }
                messages.send(control, request, [far_stream.fileno(), far_errors.fileno()])
            control.settimeout(_OPEN_SECONDS)
            answer = messages.receive(control)
            if "refused" in answer:
                raise ChannelRefusedError(str(answer["refused"]))
            if "lost" in answer:
                link.lost(str(answer["lost"]))
                raise DownError(str(answer["lost"]), started=bool(answer.get("started")))
            failed.pop_all()

    def send(self, data: bytes) -> None:
        """See `Channel.send`."""
        self._stream.sendall(data)

    def end_input(self) -> None:
        """See `Channel.end_input`."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)

    def receive(self, timeout: float | None) -> bytes:
        """See `Channel.receive`."""
        if timeout is not None:  # settimeout would also limit `send` in another thread
            waiting = select.poll()
            waiting.register(self._stream, select.POLLIN)
            if not waiting.poll(timeout * 1000):
                raise TimeoutError
        return _receive(self._stream)

    def receive_error(self) -> bytes:
        """See `Channel.receive_error`."""
        return _receive(self._errors)

    def resize(self, screen: Screen) -> None:
        """See `Channel.resize`."""
        with contextlib.suppress(OSError):
            messages.send(self._control, {"screen": astuple(screen)})

    def wait(self, timeout: float | None) -> int | None:
        """See `Channel.wait`."""
        if self._end is None:
            self._control.settimeout(timeout)
            try:
                self._end = messages.receive(self._control)
            except TimeoutError:
                raise
            except (OSError, EOFError, ValueError):
                self._end = {"lost": GONE}
            if "lost" in self._end:
                self._link.lost(str(self._end["lost"]))
        status = self._end.get("status")
        return None if status is None else int(status)

    def close(self) -> None:
        """See `Channel.close`."""
        for one in (self._control, self._stream, self._errors):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes a thread of ours that reads it
            one.close()


def find(path: Path, *, keep: float | None = None) -> KeptLink | None:
    """The kept login behind a socket; None where nothing usable answers.

    Args:
        path: of the socket.
        keep: a new time limit for the keeper, in seconds without a command.
    """
    with contextlib.suppress(OSError, EOFError, ValueError, KeyError):
        lease = _connect(path)
        try:
            lease.settimeout(_ANSWER_SECONDS)
            messages.send(lease, {"want": "lease", "version": messages.VERSION, "keep": keep})
            answer = messages.receive(lease)
            kept = Kept(str(answer["host"]), int(answer["version"]))
            if kept.version == messages.VERSION and "lost" not in answer:
                lease.settimeout(None)
                return KeptLink(path, lease, kept)
        except BaseException:
            lease.close()
            raise
        lease.close()
    return None


def deserted(path: Path) -> bool:
    """Whether nobody listens at a socket any more; one that is busy, or of another version, is served."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def end(path: Path) -> str | None:
    """End the keeper behind a socket, of whatever version. Returns its host; None where none answers."""
    with contextlib.suppress(OSError, EOFError, ValueError, KeyError), _connect(path) as control:
        control.settimeout(_ANSWER_SECONDS)
        messages.send(control, {"want": "end"})
        return str(messages.receive(control)["host"])
    return None


def _connect(path: Path) -> socket.socket:
    """Raises OSError where nobody listens, or somebody else does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(str(path))
        connection.settimeout(None)
        if not messages.peer_is_me(connection):
            raise PermissionError(f"{path} is served by another user")
    except BaseException:
        connection.close()
        raise
    return connection


def _pair(failed: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, which are closed if what they are for fails; they may be closed before."""
    ours, far = socket.socketpair()
    failed.callback(ours.close)
    failed.callback(far.close)
    return ours, far


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK)
    except OSError:  # the keeper closed it while something of ours was unread, or we have closed it
        return b""
