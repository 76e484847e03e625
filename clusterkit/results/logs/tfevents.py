"""Reads TensorBoard's event files: scalars, as every version of TensorFlow and PyTorch writes them.

A file is a sequence of records: length (8 bytes), its checksum, an `Event` of protobuf, its checksum. A
checksum is a CRC32C that is rotated and shifted (tensorflow/core/lib/hash/crc32c.h). Field numbers are those
of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto and tensor.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from clusterkit.results.logs.format import LogFormat, UnreadableLogError, is_name
from clusterkit.results.logs.protobuf import as_bytes, as_int, as_text, fields, real
from clusterkit.results.metrics import LOG, MetricRow
from clusterkit.untrusted import number

_LARGEST = 1 << 16
"""Bytes of a record with scalars; larger ones, such as images, are passed over."""
_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
_STEP, _SUMMARY, _TIME = 2, 5, 1
_TAG, _SIMPLE, _TENSOR, _METADATA = 1, 2, 8, 9


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """Returns the checksum of a record's part."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class EventFile(LogFormat):
    """An event file; a record that is not whole waits."""

    def __init__(self, path: str, step: str | None = None) -> None:
        super().__init__(path, step)
        self._rest = b""
        self._skip = 0
        """Bytes of a large record that are still to come."""
        self._offset = 0

    @classmethod
    def source(cls, path: str) -> str:
        """Returns the folder, whose files continue each other."""
        return path.rpartition("/")[0]

    def feed(self, data: bytes) -> Iterator[MetricRow]:
        """Yields a row for each scalar, see `LogFormat.feed`."""
        self._rest += data
        position = 0
        try:
            while True:
                passed = min(self._skip, len(self._rest) - position)
                position, self._skip = position + passed, self._skip - passed
                if self._skip or len(self._rest) - position < _HEAD.size:
                    return
                length, checksum = _HEAD.unpack_from(self._rest, position)
                if masked_crc(self._rest[position : position + 8]) != checksum:
                    raise UnreadableLogError(f"byte {self._offset + position:,} begins no record")
                if length > _LARGEST:
                    self._skip = _HEAD.size + length + _TAIL.size
                    continue
                end = position + _HEAD.size + length
                if end + _TAIL.size > len(self._rest):
                    return
                record = self._rest[position + _HEAD.size : end]
                if masked_crc(record) != _TAIL.unpack_from(self._rest, end)[0]:
                    raise UnreadableLogError(f"the record at byte {self._offset + position:,} is damaged")
                position = end + _TAIL.size
                yield from _scalars(record)
        finally:
            self._rest, self._offset = self._rest[position:], self._offset + position


def _scalars(event: bytes) -> Iterator[MetricRow]:
    values = dict(fields(event))
    summary = as_bytes(values.get(_SUMMARY))
    step, time = number(as_int(values.get(_STEP))), real(values.get(_TIME)) or 0.0  # zeros may be left out
    if not summary or step is None:
        return
    time = time if math.isfinite(time) and 0 <= time < 1e11 else 0.0
    for field, value in fields(summary):
        if field == 1 and (scalar := _scalar(as_bytes(value))):
            yield MetricRow(LOG, int(step), time, 0, dict([scalar]))


def _scalar(message: bytes) -> tuple[str, float] | None:
    """Returns name and number of a summary's value; None for images, histograms and texts."""
    value = dict(fields(message))
    name, logged = as_text(value.get(_TAG)), real(value.get(_SIMPLE))
    if logged is None and _TENSOR in value:
        logged = _tensor(as_bytes(value[_TENSOR]))
    return (name, logged) if name is not None and is_name(name) and logged is not None else None


def _tensor(message: bytes) -> float | None:
    """Returns the number in a tensor with one, of type float or double: packed, or in a field of its type."""
    tensor = dict(fields(message))
    if as_int(tensor.get(1)) not in (1, 2):
        return None
    return real(tensor.get(4) or tensor.get(5) or tensor.get(6))
