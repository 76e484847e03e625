"""What a program prints on standard error: the beginning and the end, however much that is."""

from __future__ import annotations


class Words:
    """Collects what comes in pieces.

    Args:
        most: bytes kept of the beginning, and at least as many of the end.
    """

    def __init__(self, most: int = 2 << 20) -> None:
        self._most = most
        self._first, self._last = bytearray(), bytearray()
        self._lost = False

    def add(self, data: bytes) -> None:
        """Adds a piece."""
        room = self._most - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        if len(self._last) > 2 * self._most:
            self._lost = True
            del self._last[: -self._most]

    @property
    def data(self) -> bytes:
        """All of it, or its beginning and its end, as whole lines where there are any."""
        if not self._lost:
            return bytes(self._first + self._last)
        first, last = self._first.rpartition(b"\n")[0], self._last.partition(b"\n")[2]
        return bytes((first or self._first) + b"\n" + (last or self._last))

    @property
    def text(self) -> str:
        """The same as UTF-8, undecodable bytes replaced."""
        return self.data.decode("utf-8", "replace")
