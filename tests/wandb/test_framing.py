"""The framing of W&B logs: what is written is read, and damage is seen where it is."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.results.logs.wandb import BLOCK, HEADER, write
from clusterkit.wandb.records import Framing, LogState, scan

RECORDS = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, 2 * BLOCK + 99).map(lambda n: bytes([n % 251]) * n)),
    max_size=8,
)


def log_of(records: list[bytes]) -> bytes:
    stream = io.BytesIO()
    write(stream, records)
    return stream.getvalue()


def read(data: bytes) -> tuple[list[bytes], Framing]:
    seen: list[bytes] = []
    return seen, scan(io.BytesIO(data), seen.append)


def ends_of(records: list[bytes]) -> list[int]:
    return [read(log_of(records[:n]))[1].good_end for n in range(len(records) + 1)]


@given(RECORDS)
def test_what_is_written_is_read(records: list[bytes]) -> None:
    data = log_of(records)
    assert read(data) == (records, Framing(LogState.COMPLETE, len(records), len(data)))


@settings(max_examples=60)
@given(RECORDS, st.data())
def test_a_cut_keeps_every_whole_record(records: list[bytes], draw: st.DataObject) -> None:
    data = log_of(records)
    cut = draw.draw(st.integers(0, len(data)))
    seen, framing = read(data[:cut])
    whole = [end for end in ends_of(records)[1:] if end <= cut]
    assert seen == records[: len(whole)]
    assert framing.good_end == (max([len(HEADER), *whole]) if cut >= len(HEADER) else 0)
    # Between records nothing tells a cut from an end, but zeros before the end of a block.
    assert (framing.state is LogState.COMPLETE) == (
        not data[framing.good_end : cut].strip(b"\0") and cut >= 7
    )


@settings(max_examples=60)
@given(RECORDS.filter(bool), st.data())
def test_a_flipped_bit_never_yields_a_wrong_record(records: list[bytes], draw: st.DataObject) -> None:
    data = bytearray(log_of(records))
    place = draw.draw(st.integers(0, len(data) - 1))
    data[place] ^= 1 << draw.draw(st.integers(0, 7))
    seen, framing = read(bytes(data))
    assert seen == records[: len(seen)]
    assert framing.state is not LogState.COMPLETE
    assert framing.records == len(seen) < len(records)


def test_records_fill_blocks_as_the_format_says() -> None:
    # 6 bytes are left in the first block: too few for a chunk header, so they are zeros.
    first = BLOCK - len(HEADER) - 7 - 6
    data = log_of([b"a" * first, b"b"])
    assert data[BLOCK - 6 : BLOCK] == bytes(6)
    assert data[BLOCK + 6] == 1
    # 7 bytes are left: an empty first chunk, then the rest.
    data = log_of([b"a" * (first - 1), b"b"])
    assert (data[BLOCK - 1], data[BLOCK + 6]) == (2, 4)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"", LogState.TRUNCATED),
        (HEADER[:5], LogState.TRUNCATED),
        (b"PK\3\4" + bytes(60), LogState.CORRUPT),
        (HEADER + bytes(4096), LogState.CORRUPT),
    ],
)
def test_files_without_a_record(data: bytes, state: LogState) -> None:
    seen, framing = read(data)
    assert (seen, framing.state, framing.records) == ([], state, 0)


def test_only_a_header_is_an_empty_log() -> None:
    assert read(HEADER) == ([], Framing(LogState.COMPLETE, 0, len(HEADER)))
