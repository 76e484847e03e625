"""The block framing of a W&B transaction log (`run-<id>.wandb`), independent of its records.

A file starts with a 7-byte header; then come blocks of 32 KiB (the first one holds the header). A record is
one chunk, or several when it crosses blocks: crc32 of type and data, length, type (whole, first, middle,
last), data. The last bytes of a block that cannot hold a chunk header are zeros. This is LevelDB's log format
with another checksum; it has not changed since 2021 and is the same in wandb 0.28 to 0.31.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CHECKSUM_OF_TYPE = [zlib.crc32(bytes([kind])) for kind in range(5)]


class LogState(StrEnum):
    """How much of a log can be read."""

    COMPLETE = "complete"
    """To its end, at the end of a record."""
    TRUNCATED = "truncated"
    """It ends inside a record: it is being written, or its writer was killed."""
    CORRUPT = "corrupt"
    """A checksum or a chunk header is wrong."""


@dataclass(frozen=True)
class Framing:
    """The whole records of a log."""

    state: LogState
    records: int
    good_end: int
    """Offset after the last whole record, where the log can be truncated."""


def scan(stream: BinaryIO, on_record: Callable[[bytes], None]) -> Framing:
    """Read a log from its beginning, one block in memory at a time.

    Args:
        stream: the log, positioned at byte 0.
        on_record: called with the bytes of every whole record, in order.
    """
    parts: list[bytes] | None = None
    records, good_end, offset = 0, 0, 0
    while block := stream.read(BLOCK):
        position = 0
        if offset == 0:
            if block[: len(HEADER)] != HEADER:
                state = LogState.TRUNCATED if HEADER.startswith(block) else LogState.CORRUPT
                return Framing(state, 0, 0)
            position = good_end = len(HEADER)
        while BLOCK - position >= _CHUNK.size and position < len(block):
            chunk = _read_chunk(block, position)
            if isinstance(chunk, LogState):
                return Framing(chunk, records, good_end)
            kind, data = chunk
            if (kind in (_WHOLE, _FIRST)) != (parts is None):
                return Framing(LogState.CORRUPT, records, good_end)
            position += _CHUNK.size + len(data)
            parts = [*(parts or ()), data]
            if kind in (_WHOLE, _LAST):
                on_record(b"".join(parts))
                parts, records, good_end = None, records + 1, offset + position
        if block[position:].strip(b"\0"):
            return Framing(LogState.CORRUPT, records, good_end)
        offset += len(block)
    whole = parts is None and offset >= len(HEADER)
    return Framing(LogState.COMPLETE if whole else LogState.TRUNCATED, records, good_end)


def _read_chunk(block: bytes, position: int) -> tuple[int, bytes] | LogState:
    """Type and data of the chunk at `position`, or what is wrong with it."""
    if position + _CHUNK.size > len(block):
        return LogState.TRUNCATED
    checksum, length, kind = _CHUNK.unpack_from(block, position)
    start = position + _CHUNK.size
    if not _WHOLE <= kind <= _LAST or start + length > BLOCK:
        return LogState.CORRUPT
    data = block[start : start + length]
    if len(data) < length:
        return LogState.TRUNCATED
    if zlib.crc32(data, _CHECKSUM_OF_TYPE[kind]) != checksum:
        return LogState.CORRUPT
    return kind, data


def write(stream: BinaryIO, records: Iterable[bytes]) -> None:
    """Write a whole log: the header and the records in the framing `scan` reads."""
    stream.write(HEADER)
    position = len(HEADER)
    for record in records:
        rest = memoryview(record)
        first = True
        while first or rest:
            room = BLOCK - position
            if room < _CHUNK.size:
                stream.write(bytes(room))
                position, room = 0, BLOCK
            data, rest = rest[: room - _CHUNK.size], rest[room - _CHUNK.size :]
            kind = (_FIRST if rest else _WHOLE) if first else (_MIDDLE if rest else _LAST)
            stream.write(_CHUNK.pack(zlib.crc32(data, _CHECKSUM_OF_TYPE[kind]), len(data), kind))
            stream.write(data)
            position += _CHUNK.size + len(data)
            first = False
