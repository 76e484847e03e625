"""Reads and writes W&B's transaction logs (`run-<id>.wandb`): blocks and fields.

A file starts with a 7-byte header; then come blocks of 32 KiB (the first one holds the header). A record is
one chunk, or several when it crosses blocks: crc32 of type and data, length, type (whole, first, middle,
last), data. The last bytes of a block that cannot hold a chunk header are zeros. This is LevelDB's log format
with another checksum; it has not changed since 2021 and is the same in wandb 0.28 to 0.31.

Field numbers are those of `wandb/proto/wandb_internal.proto` (0.28 to 0.31) and never change within
protobuf's rules. Reading them here keeps wandb, which takes seconds to import, out of a sync that uploads
nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import BinaryIO

_BOOKKEEPING = frozenset({1, 16, 19, 200})
"""Fields of `Record` besides its one payload: num, control, uuid, _info."""
BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CHECKSUM_OF_TYPE = [zlib.crc32(bytes([kind])) for kind in range(5)]


class RecordKind(IntEnum):
    """Record types by their field number in `Record`; others are kept as plain numbers."""

    HISTORY = 2
    OUTPUT = 4
    STATS = 7
    OUTPUT_RAW = 13
    RUN = 17
    EXIT = 18
    PREEMPTING = 23


@dataclass(frozen=True)
class LoggedRun:
    """The record that names the run."""

    run_id: str
    entity: str | None
    project: str | None
    started: float
    """Unix seconds."""


def kind_of(record: bytes) -> int | None:
    """Returns the field number of a record's payload; None when there is none."""
    return next((number for number, _ in _fields(record) if number not in _BOOKKEEPING), None)


def run_record(record: bytes) -> LoggedRun:
    """Returns the content of a record of kind RUN."""
    fields = dict(_fields(_payload(record, RecordKind.RUN)))
    moment = dict(_fields(_bytes(fields.get(17, b""))))
    return LoggedRun(
        run_id=_text(fields.get(1)) or "",
        entity=_text(fields.get(2)),
        project=_text(fields.get(3)),
        started=_int(moment.get(1)) + _int(moment.get(2)) / 1e9,
    )


def exit_code(record: bytes) -> int:
    """Returns the exit code in a record of kind EXIT."""
    value = _int(dict(_fields(_payload(record, RecordKind.EXIT))).get(1))
    return value - (1 << 64) if value >> 63 else value


def encode_exit(code: int) -> bytes:
    """Returns a record of kind EXIT, for a non-negative code."""
    payload = b"\x08" + _encode_varint(code)
    return _encode_varint(RecordKind.EXIT << 3 | 2) + _encode_varint(len(payload)) + payload


def encode_preempting() -> bytes:
    """Returns a record of kind PREEMPTING, as `wandb.mark_preempting()` writes it."""
    return _encode_varint(RecordKind.PREEMPTING << 3 | 2) + _encode_varint(0)


def history_step(record: bytes) -> int | None:
    """Returns the `_step` of a record of kind HISTORY; None when it carries none."""
    for number, item in _fields(_payload(record, RecordKind.HISTORY)):
        if number == 1:
            fields = dict(_fields(_bytes(item)))
            key = _text(fields.get(1)) or _text(fields.get(2))
            text = _text(fields.get(16))
            if key == "_step" and text is not None and text.isdigit():
                return int(text)
        elif number == 2:
            return _int(dict(_fields(_bytes(item))).get(1))
    return None


def _payload(record: bytes, kind: RecordKind) -> bytes:
    return _bytes(dict(_fields(record)).get(kind, b""))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) of a message; a malformed rest is ignored, checksums come before."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        wire_type = tag & 7
        if wire_type == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if wire_type == 2:
            length, position = _varint(message, position)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            return
        if position + length > end:
            return
        yield tag >> 3, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _int(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _text(value: int | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) and value else None


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
    """Reads a log from its beginning, one block in memory at a time.

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
    """Returns type and data of the chunk at `position`, or what is wrong with it."""
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
    """Writes a whole log: the header and the records in the framing `scan` reads."""
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
