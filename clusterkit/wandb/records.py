"""Reads the records of W&B's transaction logs, whose framing `clusterkit.results.logs.wandb` knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import BinaryIO

from clusterkit.results.logs.protobuf import as_bytes, as_int, as_text, fields
from clusterkit.results.logs.wandb import BLOCK, Framed, history

_BOOKKEEPING = frozenset({1, 16, 19, 200})
"""Fields of `Record` besides its one payload: num, control, uuid, _info."""


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
    return next((number for number, _ in fields(record) if number not in _BOOKKEEPING), None)


def run_record(record: bytes) -> LoggedRun:
    """Returns the content of a record of kind RUN."""
    run = dict(fields(_payload(record, RecordKind.RUN)))
    moment = dict(fields(as_bytes(run.get(17, b""))))
    return LoggedRun(
        run_id=as_text(run.get(1)) or "",
        entity=as_text(run.get(2)),
        project=as_text(run.get(3)),
        started=as_int(moment.get(1)) + as_int(moment.get(2)) / 1e9,
    )


def exit_code(record: bytes) -> int:
    """Returns the exit code in a record of kind EXIT."""
    return as_int(dict(fields(_payload(record, RecordKind.EXIT))).get(1))


def encode_exit(code: int) -> bytes:
    """Returns a record of kind EXIT, for a non-negative code."""
    payload = b"\x08" + _encode_varint(code)
    return _encode_varint(RecordKind.EXIT << 3 | 2) + _encode_varint(len(payload)) + payload


def encode_preempting() -> bytes:
    """Returns a record of kind PREEMPTING, as `wandb.mark_preempting()` writes it."""
    return _encode_varint(RecordKind.PREEMPTING << 3 | 2) + _encode_varint(0)


def history_step(record: bytes) -> int | None:
    """Returns the `_step` of a record of kind HISTORY; None when it carries none."""
    return history(record)[0]


def _payload(record: bytes, kind: RecordKind) -> bytes:
    return as_bytes(dict(fields(record)).get(kind, b""))


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


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
    framed = Framed()
    while not framed.corrupt and (block := stream.read(BLOCK)):
        for record in framed.feed(block):
            on_record(record)
    whole = LogState.COMPLETE if framed.complete else LogState.TRUNCATED
    return Framing(LogState.CORRUPT if framed.corrupt else whole, framed.records, framed.good_end)
