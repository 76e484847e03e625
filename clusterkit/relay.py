"""Carries many byte streams over one: between the laptop and the node on which a run's program runs.

The laptop imports it. A node's Python runs its text: `python -I -c TEXT ports` connects each stream to the
port of the loopback that it asks for, `python -I -c TEXT program COMMAND...` to a new process of the command,
on a socket that only the two hold. It ends with its standard input. It uses only the standard library of
Python 3.8, of that only what Debian's python3-minimal has, and nothing of clusterkit.

A frame is one line: a letter, the stream's number, a space, the data. A Slurm step passes its output on by
lines, so a whole line arrives at once. A stream has at most WINDOW bytes on the way that its receiver has not
passed on: one that nobody reads holds up no other, and fills no memory.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

WINDOW = 1 << 20
_PIECE = 1 << 15
"""Bytes read at once, at most."""
READY, OPEN, REFUSED = b"R", b"O", b"X"
"""Frames: the node is ready; the laptop wants a stream connected; one could not be connected, and why."""
_DATA, _END, _TAKEN = b"D", b"E", b"T"
"""Data; there is no more; so many bytes were passed on."""
_LISTENS = "0A"
"""A state in /proc/net/tcp."""
_CONNECT_SECONDS = 10.0


class LineSplitter:
    """Splits bytes that arrive in pieces into lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that these bytes complete, without their ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        self._rest.append(rest)
        return lines


def frame(kind: bytes, number: int, data: bytes = b"") -> bytes:
    """Returns one line."""
    return b"%s%d %s\n" % (kind, number, data.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"))


def read_frame(line: bytes) -> tuple[bytes, int, bytes]:
    """Returns a line's kind, number and data.

    Raises:
        ValueError: it is not a frame.
    """
    head, _, data = line.partition(b" ")
    parts = data.split(b"\\\\")
    return head[:1], int(head[1:]), b"\\".join([part.replace(b"\\n", b"\n") for part in parts])


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
        self._over = False

    def write(self, data: bytes) -> None:
        """Sends a frame; nothing once the other side is gone, of which whoever reads from it learns."""
        with self._sending, contextlib.suppress(OSError):
            self._send(data)

    def open(self, number: int, connect: Callable[[], socket.socket]) -> None:
        """Connects a stream to a socket, in the background, and closes the socket at the end.

        Args:
            number: of the stream.
            connect: returns the socket, or raises OSError.
        """
        stream = self._streams[number] = _RelayedStream(number, self.write)

        def serve() -> None:
            try:
                stream.serve(connect)
            finally:
                self._streams.pop(number, None)

        threading.Thread(target=serve, daemon=True).start()
        if self._over:
            stream.take(REFUSED, b"")

    def take(self, kind: bytes, number: int, data: bytes) -> None:
        """Takes a frame of the other side. Never waits; a stream that has ended takes nothing."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.take(kind, data)

    def close(self) -> None:
        """Ends all streams, also those to come, once the other side is gone."""
        self._over = True
        for stream in list(self._streams.values()):
            stream.take(REFUSED, b"")


class _RelayedStream:
    """One stream. What comes from the other side is kept until there is a socket to pass it on to."""

    def __init__(self, number: int, write: Callable[[bytes], None]) -> None:
        self._number, self._write = number, write
        self._window = WINDOW
        self._news = threading.Condition()
        self._pieces: deque[bytes | None] = deque()
        self._peer: socket.socket | None = None
        self._over = False

    def take(self, kind: bytes, data: bytes) -> None:
        with self._news:
            if kind == _TAKEN:
                self._window += int(data)
            else:
                self._pieces.append(data if kind == _DATA else None)
            self._news.notify_all()
        if kind == REFUSED:
            self._over = True
            self._wake()

    def serve(self, connect: Callable[[], socket.socket]) -> None:
        try:
            self._peer = peer = connect()
        except OSError as error:
            self._write(frame(REFUSED, self._number, (error.strerror or str(error)).encode()))
            return
        with peer:
            if self._over:
                self._wake()
            reader = threading.Thread(target=self._read, args=(peer,), daemon=True)
            reader.start()
            self._pass_on(peer)
            reader.join()

    def _wake(self) -> None:
        """Ends the thread that reads the socket, if there is one yet."""
        if self._peer is not None:
            with contextlib.suppress(OSError):
                self._peer.shutdown(socket.SHUT_RDWR)

    def _read(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):  # its other end is gone
            while True:
                with self._news:
                    self._news.wait_for(lambda: self._window > 0 or self._over)
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
                self._news.wait_for(lambda: self._pieces)
                data = self._pieces.popleft()
            if data is None:
                break
            try:
                if listens:
                    peer.sendall(data)
            except OSError:  # its other end is gone; the rest is for nobody
                listens = False
            self._write(frame(_TAKEN, self._number, b"%d" % len(data)))
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_WR)


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


def main(kind: str, *command: str) -> None:
    """Serves the laptop on standard input and output, until that ends."""

    def send(data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(1, left) :]

    relay, lines = Relay(send), LineSplitter()
    relay.write(frame(READY, 0))
    while True:
        data = os.read(0, 1 << 18)
        if not data:
            os._exit(0)  # whatever its threads wait for
        for line in lines.feed(data):
            what, number, content = read_frame(line)
            if what != OPEN:
                relay.take(what, number, content)
            elif kind == "ports":
                relay.open(number, lambda port=int(content): connect_to(port))  # type: ignore[misc]
            else:
                relay.open(number, lambda: start(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
