"""Reads W&B's transaction logs (`run-<id>.wandb`), and writes them: their framing and history.

A file starts with a 7-byte header; then come blocks of 32 KiB (the first one holds the header). A record is
one chunk, or several when it crosses blocks: crc32 of type and data, length, type (whole, first, middle,
last), data. The last bytes of a block that cannot hold a chunk header are zeros. This is LevelDB's log format
with another checksum; it has not changed since 2021 and is the same in wandb 0.28 to 0.31.

Field numbers are those of `wandb/proto/wandb_internal.proto` (0.28 to 0.31) and never change within
protobuf's rules. Reading them here keeps wandb, which takes seconds to import, out of a sync that uploads
nothing.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from clusterkit.results.logs.format import LogFormat, UnreadableLogError, row_of
from clusterkit.results.logs.jsonl import flat
from clusterkit.results.logs.protobuf import as_bytes, as_int, as_text, fields
from clusterkit.results.metrics import MetricRow

BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CHECKSUM_OF_TYPE = [zlib.crc32(bytes([kind])) for kind in range(5)]
HISTORY = 2
"""Field of a record that holds a line of the history."""


class Framed:
    """Finds the whole records among the bytes of a log, as they arrive."""

    def __init__(self) -> None:
        self.records = 0
        self.good_end = 0
        """Offset after the last whole record, where the log can be truncated."""
        self.corrupt = False
        """Whether a checksum or a chunk header is wrong; nothing is found after it."""
        self._rest = b""
        self._offset = 0
        """Of the rest."""
        self._parts: list[bytes] | None = None

    @property
    def complete(self) -> bool:
        """Whether the log ends at the end of a record so far."""
        return self._offset >= len(HEADER) and self._parts is None and not self._rest and not self.corrupt

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the records that end in the next bytes of the log."""
        if self.corrupt:
            return []
        found: list[bytes] = []
        rest, position = self._rest + data, 0
        if self._offset == 0:
            if rest[: len(HEADER)] != HEADER:
                self._rest, self.corrupt = rest, not HEADER.startswith(rest)
                return []
            position = self.good_end = len(HEADER)
        while position < len(rest):
            room = BLOCK - (self._offset + position) % BLOCK
            if room < _CHUNK.size:
                self.corrupt = bool(rest[position : position + room].strip(b"\0"))
                position = min(position + room, len(rest))
            elif (chunk := self._chunk(rest, position, room)) is None:
                break
            else:
                kind, part = chunk
                position += _CHUNK.size + len(part)
                self._parts = self._parts or []
                self._parts.append(part)
                if kind in (_WHOLE, _LAST):
                    found.append(b"".join(self._parts))
                    self._parts, self.records = None, self.records + 1
                    self.good_end = self._offset + position
            if self.corrupt:
                break
        self._rest, self._offset = rest[position:], self._offset + position
        return found

    def _chunk(self, rest: bytes, position: int, room: int) -> tuple[int, bytes] | None:
        """Returns type and data of a chunk; None if it is not whole yet, or wrong."""
        if len(rest) - position < _CHUNK.size:
            return None
        checksum, length, kind = _CHUNK.unpack_from(rest, position)
        start = position + _CHUNK.size
        if not _WHOLE <= kind <= _LAST or _CHUNK.size + length > room:
            self.corrupt = True
            return None
        data = rest[start : start + length]
        if len(data) < length:
            return None
        if zlib.crc32(data, _CHECKSUM_OF_TYPE[kind]) != checksum or (kind in (_WHOLE, _FIRST)) != (
            self._parts is None
        ):
            self.corrupt = True
            return None
        return kind, data


def write(stream: BinaryIO, records: Iterable[bytes]) -> None:
    """Writes a whole log: the header and the records in the framing that `Framed` reads."""
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


def history(record: bytes) -> tuple[int | None, dict[str, str]]:
    """Returns the step of a line of the history, and its values in JSON by name."""
    step, values = None, {}
    line = as_bytes(dict(fields(record)).get(HISTORY))
    for number, item in fields(line):
        if number == 1:
            keys = [as_text(value) or "" for field, value in fields(as_bytes(item)) if field in (1, 2)]
            text = as_text(dict(fields(as_bytes(item))).get(16))
            if text is not None:
                values["/".join(filter(None, keys))] = text
        elif number == 2:
            step = as_int(dict(fields(as_bytes(item))).get(1))
    said = values.get("_step", "")
    return (int(said) if said.isdecimal() else step), values


class WandbHistory(LogFormat):
    """The history in a log."""

    def __init__(self, path: str, step: str | None = None) -> None:
        super().__init__(path, step)
        self._framed = Framed()

    @classmethod
    def source(cls, path: str) -> str:
        """Returns the name of the log, which has the W&B run's id: each start writes into another folder."""
        return path.rpartition("/")[2]

    def feed(self, data: bytes) -> Iterator[MetricRow]:
        """Yields the rows of the history, see `LogFormat.feed`."""
        for record in self._framed.feed(data):
            self.row_bytes = len(record)
            step, texts = history(record)
            values = {name: value for name, text in texts.items() if (value := _value(text)) is not None}
            numbers = flat(values) | ({} if step is None else {"_step": float(step)})
            row = row_of(numbers, 0, self.step) if texts else None
            if row is not None:
                own = {name: value for name, value in row.values.items() if not name.startswith("_")}
                yield MetricRow(row.kind, row.step, row.time, 0, own)
        if self._framed.corrupt:
            raise UnreadableLogError(f"a checksum is wrong after byte {self._framed.good_end:,}")


def _value(text: str) -> Any:
    """Returns a number, or an object of numbers that is no picture or histogram."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, dict) and "_type" in value else value
