"""A relay in front of an sshd that counts what passes and acts when so many bytes have."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from tests.doubles.loopback_sshd import LoopbackSshd


class Relay:
    """Serves connections one after the other or together, until it is closed.

    `after(count, act)` calls `act` once when so many more bytes have gone up, `after_down` likewise when they
    have come down; nothing more passes before `act` has returned.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.up = 0
        """Bytes that went to the server."""
        self.down = 0
        """Bytes that came from it."""
        self.pause = 0.0
        """Seconds of rest after each 32 kB that go up."""
        self.rate = 0.0
        """Bytes a second that may go up, over all connections; 0 for any number."""
        self.silent = threading.Event()
        """Set, nothing arrives any more, and neither side is told."""
        self._due = 0.0
        self._mark: tuple[int, Callable[[], object]] | None = None
        self._mark_down: tuple[int, Callable[[], object]] | None = None
        self._pairs: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def host_block(self, server: LoopbackSshd, *lines: str) -> str:
        """The server's Host block for ssh_config, with the way through here and these lines first."""
        way = [f"Port {self.port}", f"HostKeyAlias [127.0.0.1]:{server.port}"]
        return server.host_block(lines=[*lines, *way])

    def after(self, count: int, act: Callable[[], object]) -> None:
        self._mark = (self.up + count, act)

    def after_down(self, count: int, act: Callable[[], object]) -> None:
        self._mark_down = (self.down + count, act)

    def cut(self) -> None:
        """End every connection at once, on both sides."""
        for end in list(self._pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """End every connection with a reset (RST), as a host does that knows nothing of it."""
        for end in list(self._pairs):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes who serves it, and sends nothing

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            self._pairs |= {near, far}
            with contextlib.suppress(OSError):
                while self._pass_on(near, far):
                    continue
            self._pairs -= {near, far}

    def _owed(self, count: int) -> float:
        """Seconds until so many more bytes were due at the rate."""
        now = time.monotonic()
        self._due = max(self._due, now) + (count / self.rate if self.rate else 0.0)
        return self._due - now

    def _pass_on(self, near: socket.socket, far: socket.socket) -> bool:
        for ready in select.select([near, far], [], [])[0]:
            data = ready.recv(1 << 15)
            if not data:
                return False
            if self.silent.is_set():
                continue
            if ready is near:
                far.sendall(data)
                self.up += len(data)
                time.sleep(self.pause + self._owed(len(data)))
                if self._mark and self.up >= self._mark[0]:
                    act, self._mark = self._mark[1], None
                    act()
            else:
                near.sendall(data)
                self.down += len(data)
                if self._mark_down and self.down >= self._mark_down[0]:
                    act, self._mark_down = self._mark_down[1], None
                    act()
        return True
