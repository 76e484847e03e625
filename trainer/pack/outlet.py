"""A text stream to a file descriptor of another process, whose end or full disk is no fault of ours."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def outlet(descriptor: int) -> TextIO:
    """Returns a stream that writes line by line, and drops what cannot be written.

    Args:
        descriptor: of an open file or pipe; closed with the stream. A terminal is treated like a file: of
            several runs in one process none draws on one.
    """
    os.set_inheritable(descriptor, False)
    raw = io.BufferedWriter(_Outlet(descriptor))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)


class _Outlet(io.RawIOBase):
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
