"""Reads the entries of an untrusted tar stream; nothing is read before its size is known.

tarfile loads an extended header of any size into memory, and follows the maps of sparse files. An export has
neither long headers nor sparse files, so this module walks the blocks and lets tarfile parse each header.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

_BLOCK = 512
_LONGEST_HEADER = 64 << 10
"""Bytes: ample for a name and a link's target."""
_KEYS = ("path", "linkpath", "size")


class Content:
    """The unread content of an entry."""

    def __init__(self, stream: IO[bytes], size: int, header: int = 0) -> None:
        self._stream, self._left = stream, size
        self.header = header
        """Bytes of the preceding headers."""

    def read(self, most: int) -> bytes:
        """Reads the next bytes; empty at the end.

        Raises:
            EOFError: the stream ends too early.
        """
        data = self._stream.read(min(most, self._left))
        if self._left and not data:
            raise EOFError("it is truncated")
        self._left -= len(data)
        return data


def entries(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, Content]]:
    """Iterates over files and links with their content, up to the end-of-archive block.

    Raises:
        tarfile.TarError: a header is damaged.
        ValueError: a header is too long, or of a kind that an export does not have.
        EOFError: the stream is cut short.
    """
    extended: dict[str, str] | None = None
    header = _BLOCK
    while any(block := _exactly(stream, _BLOCK)):
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if entry.type == tarfile.XHDTYPE and extended is None:
            if not 0 < entry.size <= _LONGEST_HEADER:
                raise ValueError(f"a header of {entry.size} bytes")
            extended = _records(_exactly(stream, entry.size))
            _exactly(stream, -entry.size % _BLOCK)
            header += entry.size
            continue
        if not (entry.isreg() or entry.issym()) or entry.issparse():
            raise ValueError(f"{entry.name!r} is neither a file nor a link")
        extended = extended or {}
        entry.name = extended.get("path", entry.name)
        entry.linkname = extended.get("linkpath", entry.linkname)
        entry.size = int(extended.get("size", entry.size))
        if entry.size < 0:
            raise ValueError(f"{entry.name!r} has {entry.size} bytes")
        content = Content(stream, entry.size, header)
        yield entry, content
        while content.read(_LONGEST_HEADER):
            pass
        _exactly(stream, -entry.size % _BLOCK)
        extended, header = None, _BLOCK


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content, parts = Content(stream, size), []
    while part := content.read(size):
        parts.append(part)
    return b"".join(parts)


def _records(data: bytes) -> dict[str, str]:
    """Returns an extended header's records: `LENGTH KEY=VALUE` and a newline; LENGTH counts all of it."""
    records = {}
    while data:
        length = int(data.partition(b" ")[0][:8])
        record = data[:length]
        if not 0 < length <= len(data) or not record.endswith(b"\n"):
            raise ValueError("a header is damaged")
        key, _, value = record[:-1].partition(b" ")[2].partition(b"=")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        data = data[length:]
    return {key: records[key] for key in _KEYS if key in records}
