"""The messages of leader and followers, their connection, and a stream to a follower's output."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True)
class Card:
    """What a run was started with."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Ending:
    """What its leader tells a run at its end.

    Attributes:
        code: the run's exit code.
        why: what a person should know of a failure; may be several lines.
        again: how many runs, this one among them, have to meet once more because the leader leaves; or 0.
    """

    code: int
    why: str = ""
    again: int = 0


class PackLine:
    """One end of a connection: whole lines of JSON, and file descriptors."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.descriptors: list[int] = []
        self._held = b""

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends a message. One who is gone does not hear it; its end is noticed elsewhere."""
        data = (json.dumps(message) + "\n").encode("utf-8", "surrogateescape")
        with contextlib.suppress(OSError):
            sent = socket.send_fds(self.end, [data], descriptors) if descriptors else 0
            self.end.sendall(data[sent:])

    def receive(self) -> list[dict[str, Any]] | None:
        """Returns the messages that have come whole, or None when the other is gone; waits for something."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.end, 1 << 16, 4)
        except OSError:
            return None
        self.descriptors += descriptors
        if not data:
            return None
        *lines, self._held = (self._held + data).split(b"\n")
        return [json.loads(line.decode("utf-8", "surrogateescape")) for line in lines]

    def close(self) -> None:
        """Ends the connection, and closes the descriptors that nobody has taken."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()
        self.end.close()


def output_stream(descriptor: int) -> TextIO:
    """Returns a stream that writes line by line, and drops what cannot be written.

    Args:
        descriptor: of an open file or pipe; closed with the stream. A terminal is treated like a file: of
            several runs in one process none draws on one.
    """
    os.set_inheritable(descriptor, False)
    raw = io.BufferedWriter(_OutputDescriptor(descriptor))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)


class _OutputDescriptor(io.RawIOBase):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
        return memoryview(data).nbytes

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        super().close()
