"""Reads messages of protobuf without their description."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) of a message; a malformed rest is ignored, checksums come before."""
    position, end = 0, len(message)
    while position < end:
        tag, position = varint(message, position)
        wire_type = tag & 7
        if wire_type == 0:
            value, position = varint(message, position)
            yield tag >> 3, value
            continue
        if wire_type == 2:
            length, position = varint(message, position)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            return
        if position + length > end:
            return
        yield tag >> 3, message[position : position + length]
        position += length


def varint(message: bytes, position: int) -> tuple[int, int]:
    """Returns the number at a position, and the position behind it."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position


def as_bytes(value: int | bytes | None) -> bytes:
    """Returns a field's bytes; none of a number."""
    return value if isinstance(value, bytes) else b""


def as_int(value: int | bytes | None) -> int:
    """Returns a field's number of 64 bits with its sign; 0 of bytes."""
    number = value & (1 << 64) - 1 if isinstance(value, int) else 0
    return number - (1 << 64) if number >> 63 else number


def as_text(value: int | bytes | None) -> str | None:
    """Returns a field's text; None if it is empty."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) and value else None


def real(value: int | bytes | None) -> float | None:
    """Returns the floating-point number in a field of four or eight bytes."""
    kind = {4: "<f", 8: "<d"}.get(len(as_bytes(value)))
    return float(struct.unpack(kind, as_bytes(value))[0]) if kind else None
