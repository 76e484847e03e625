"""Carries many byte streams over one: between the laptop and the node on which a run's program runs.

The laptop imports it. A node's Python runs its text: `python -I -c TEXT MARK ports` connects each stream to
the port of the loopback that it asks for, `python -I -c TEXT MARK program COMMAND...` to a new process of the
command, on a socket that only the two hold. It ends with its standard input. It uses only the standard
library of Python 3.8, of that only what Debian's python3-minimal has, and nothing of clusterkit.

The node prints a line with the mark and its process id, then frames. A frame is one line: a letter, the
stream's number, a space, the data. A Slurm step passes its output on by lines, so a whole line arrives at
once. A stream has at most WINDOW bytes on the way that its receiver has not passed on: one that nobody reads
holds up no other, and fills no memory. What no relay sends is a StrayLineError, before it is kept.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

WINDOW = 1 << 20
_PIECE = 1 << 15
"""Bytes read at once, at most."""
OPEN, REFUSED = b"O", b"X"
"""Frames: the laptop wants a stream connected; one could not be connected, and why."""
_DATA, _END, _TAKEN, _GONE = b"D", b"E", b"T", b"G"
"""Data; there is no more; so many bytes were passed on; who would get more has hung up."""
_LONGEST_LINE = 2 * _PIECE + 64
"""Bytes of a frame, at most: escaping doubles its data at worst."""
_DIGITS = 9
"""Of a stream's number and of a count, at most."""
_KINDS = (OPEN, REFUSED, _DATA, _END, _TAKEN, _GONE)
_LISTENS = "0A"
"""A state in /proc/net/tcp."""
_CONNECT_SECONDS = 10.0
_RESET = (1).to_bytes(4, sys.byteorder) + bytes(4)
"""A struct linger: closing the socket tells its other end at once."""


class StrayLineError(Exception):
    """The other side sent what no relay sends: a line of something else, or a frame out of turn."""

    def __init__(self, said: bytes) -> None:
        super().__init__("not a frame that is due")
        self.said = said
        """The beginning of the line."""


class FrameReader:
    """Reads the frames in bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """Yields kind, number and data of each frame that these bytes complete.

        Raises:
            StrayLineError: a line is not a frame, or too long for one.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield read_frame(line)
        if len(self._rest) > _LONGEST_LINE:
            raise StrayLineError(self._rest[:_LONGEST_LINE])


def frame(kind: bytes, number: int, data: bytes = b"") -> bytes:
    """Returns one line."""
    return b"%s%d %s\n" % (kind, number, data.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"))


def read_frame(line: bytes) -> tuple[bytes, int, bytes]:
    """Returns a line's kind, number and data.

    Raises:
        StrayLineError: it is not a frame.
    """
    head, space, data = line.partition(b" ")
    number = _number(head[1:])
    if number is None or not space or head[:1] not in _KINDS or len(line) > _LONGEST_LINE:
        raise StrayLineError(line[:_LONGEST_LINE])
    parts = data.split(b"\\\\")
    return head[:1], number, b"\\".join([part.replace(b"\\n", b"\n") for part in parts])


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS else None


class Relay:
    """All streams of one side."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """Uses a connection to the other side.

        Args:
            send: sends bytes to the other side. May raise OSError once it is gone.
        """
        self._send = send
        self._sending = threading.Lock()
        self._streams: dict[int, _RelayedStream] = {}
        self._opening = threading.Lock()
        self._newest = 0
        """The highest number of a stream so far."""
        self._over = False

    def write(self, data: bytes) -> None:
        """Sends a frame; nothing once the other side is gone, of which whoever reads from it learns."""
        with self._sending, contextlib.suppress(OSError):
            self._send(data)

    def open(
        self,
        number: int,
        connect: Callable[[], socket.socket],
        on_refused: Callable[[bytes], object] = bytes,
    ) -> None:
        """Connects a stream to a socket, in the background, and closes the socket at the end.

        Args:
            number: of the stream.
            connect: returns the socket, or raises OSError.
            on_refused: called with the other side's words if it does not connect the stream, once.
        """
        with self._opening:
            self._newest = max(self._newest, number)
        stream = self._streams[number] = _RelayedStream(number, self.write, on_refused)

        def serve() -> None:
            try:
                stream.serve(connect)
            finally:
                self._streams.pop(number, None)

        threading.Thread(target=serve, daemon=True).start()
        if self._over:
            stream.end()

    def take(self, kind: bytes, number: int, data: bytes) -> None:
        """Takes a frame of the other side. Never waits; a stream that has ended takes nothing.

        Raises:
            StrayLineError: there never was such a stream, or the frame is out of turn in it.
        """
        stream = self._streams.get(number)
        if stream is None and number > self._newest:
            raise StrayLineError(frame(kind, number, data))
        if stream is not None:
            stream.take(kind, data)

    def close(self) -> None:
        """Ends all streams, also those to come, once the other side is gone."""
        self._over = True
        for stream in list(self._streams.values()):
            stream.end()


class _RelayedStream:
    """One stream. What comes from the other side is kept until there is a socket to pass it on to."""

    def __init__(
        self, number: int, write: Callable[[bytes], None], on_refused: Callable[[bytes], object]
    ) -> None:
        self._number, self._write, self._on_refused = number, write, on_refused
        self._window = WINDOW
        """Bytes that may be sent."""
        self._news = threading.Condition()
        self._came = bytearray()
        """Bytes to be passed on."""
        self._owed = 0
        """Bytes that came and were not confirmed; at most WINDOW."""
        self._begun = self._ended = False
        """Whether a frame has come, and the last one that brings data."""
        self._unwanted = False
        """Whether nobody on the other side wants more data."""
        self._peer: socket.socket | None = None
        self._over = False

    def take(self, kind: bytes, data: bytes) -> None:
        with self._news:
            if self._over:
                return
            if not self._is_due(kind, data):
                raise StrayLineError(frame(kind, self._number, data))
            self._begun = True
            if kind == _TAKEN:
                self._window += int(data)
            elif kind == _DATA:
                self._owed += len(data)
                self._came += data
            elif kind == _GONE:
                self._unwanted = True
            else:
                self._ended = True
            self._news.notify_all()
        if kind == REFUSED:
            self._on_refused(data)
            self.end()
        elif kind == _GONE:
            self._shut(socket.SHUT_RD)

    def _is_due(self, kind: bytes, data: bytes) -> bool:
        if kind == _TAKEN:
            return 0 < (_number(data) or 0) <= WINDOW - self._window
        if kind == _DATA:
            return not self._ended and 0 < len(data) <= WINDOW - self._owed
        if kind == _GONE:
            return not self._unwanted
        return (kind == _END and not self._ended) or (kind == REFUSED and not self._begun)

    def end(self) -> None:
        """Ends the stream, because the other side is gone or has refused it."""
        with self._news:
            self._over = self._ended = True
            self._news.notify_all()
        self._shut(socket.SHUT_RDWR)

    def _shut(self, ways: int) -> None:
        """Closes ways of the socket, if there is one yet; wakes the thread that reads it."""
        if self._peer is not None:
            with contextlib.suppress(OSError):
                self._peer.shutdown(ways)

    def serve(self, connect: Callable[[], socket.socket]) -> None:
        try:
            self._peer = peer = connect()
        except OSError as error:
            self._write(frame(REFUSED, self._number, (error.strerror or str(error)).encode()))
            return
        with peer:
            if self._over:
                self.end()
            reader = threading.Thread(target=self._read, args=(peer,), daemon=True)
            reader.start()
            self._pass_on(peer)
            reader.join()
            if self._unwanted:  # else who sends to the socket may wait for a minute before it learns it
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _read(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):  # its other end is gone
            while not self._unwanted:
                with self._news:
                    self._news.wait_for(lambda: self._window > 0 or self._over or self._unwanted)
                data = peer.recv(min(_PIECE, self._window))
                if not data:
                    break
                with self._news:
                    self._window -= len(data)
                self._write(frame(_DATA, self._number, data))
        self._write(frame(_END, self._number))

    def _pass_on(self, peer: socket.socket) -> None:
        listens = True
        while True:
            with self._news:
                self._news.wait_for(lambda: self._came or self._ended)
                data = self._came[:_PIECE]
                del self._came[:_PIECE]
            if not data:
                break
            try:
                if listens:
                    peer.sendall(data)
            except OSError:  # its other end is gone; the rest is for nobody
                listens = False
                self._write(frame(_GONE, self._number))
            with self._news:
                self._owed -= len(data)
            self._write(frame(_TAKEN, self._number, b"%d" % len(data)))
        self._shut(socket.SHUT_WR)


def listener_of(port: int, table: str) -> int | None:
    """Returns the user id of who listens on a port of this machine; None if nobody does.

    Args:
        port: its number.
        table: the text of /proc/net/tcp or /proc/net/tcp6; see proc_net_tcp(5).
    """
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
            return int(words[7])
    return None


def connect_to(port: int) -> socket.socket:
    """Returns a connection to a port of this machine's loopback.

    Raises:
        OSError: nothing listens there, or another user does, who must not get what is meant for the run.
    """
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open("/proc/net/" + table) as file:
            if listener_of(port, file.read()) not in (None, os.getuid()):
                raise PermissionError(f"port {port} is another user's")
    for address in ("127.0.0.1", "::1"):
        try:
            peer = socket.create_connection((address, port), _CONNECT_SECONDS)
        except OSError:
            continue
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer
    raise ConnectionRefusedError(f"nothing listens on port {port}")


def start(command: Sequence[str]) -> socket.socket:
    """Returns a socket that is a new process's standard input and output.

    Raises:
        OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())
    threading.Thread(target=process.wait, daemon=True).start()
    return ours


def main(mark: str, kind: str, *command: str) -> None:
    """Serves the laptop on standard input and output, until that ends.

    Args:
        mark: begins the line after which the frames come.
        kind: what a stream is connected to: ports or program.
        command: of a program.
    """

    def send(data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(1, left) :]

    relay, frames = Relay(send), FrameReader()
    relay.write(b"%s%d\n" % (mark.encode(), os.getpid()))
    while True:
        data = os.read(0, 1 << 18)
        if not data:
            os._exit(0)  # whatever its threads wait for
        for what, number, content in frames.feed(data):
            if what != OPEN:
                relay.take(what, number, content)
            elif kind == "ports":
                relay.open(number, lambda port=int(content): connect_to(port))  # type: ignore[misc]
            else:
                relay.open(number, lambda: start(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
