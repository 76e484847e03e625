"""Chunks: they cover the file, and only the ones near a change change."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterkit.images.chunks import LONGEST, SHORTEST, Chunk, ChunkList, chunk_file, cuts, program

PAIR = b"\x9d\xc3"


@pytest.mark.slow
@given(st.lists(st.sampled_from([PAIR, b"\x9d", b"x" * 999, bytes(SHORTEST), bytes(LONGEST)]), max_size=40))
@example([bytes(LONGEST)] * 3)
@example([bytes(SHORTEST - 2), PAIR])
def test_chunks_cover_everything_in_order_and_within_their_bounds(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    ends = list(cuts(data))
    assert ends == sorted(set(ends))
    assert (ends or [0])[-1] == len(data)
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert all(SHORTEST <= length <= LONGEST for length in lengths[:-1])
    assert all(length <= LONGEST for length in lengths)


@pytest.mark.parametrize("size", [0, 1, 3 << 20, (4 << 20) - 1, 4 << 20, (9 << 20) + 7])
def test_a_file_is_cut_as_its_bytes_are(tmp_path: Path, size: int) -> None:
    """The file is read in blocks of 4 MiB; they must not show."""
    data = random.Random(size).randbytes(size)
    if size > 5 << 20:
        data = data[: (4 << 20) - 1] + PAIR + data[(4 << 20) + 1 :]
    path = tmp_path / "file"
    path.write_bytes(data)
    ends = list(cuts(data))
    assert [chunk.length for chunk in chunk_file(path).chunks] == [
        end - start for start, end in zip([0, *ends], ends, strict=False)
    ]


def test_the_text_is_a_program_that_does_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(random.Random(5).randbytes(5 << 20))
    with path.open("rb") as file:
        argv = [sys.executable, "-I", "-S", "-c", program()]
        done = subprocess.run(argv, stdin=file, capture_output=True, check=True)
    assert done.stdout == chunk_file(path).encode()


def test_zeros_in_the_middle_are_cut_the_same_from_block_to_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = random.Random(1).randbytes(100_000) + bytes(10 << 20) + random.Random(2).randbytes(100_000)
    path.write_bytes(data)
    ends = list(cuts(data))
    assert sum(chunk.length for chunk in chunk_file(path).chunks) == len(data)
    assert len(chunk_file(path).chunks) == len(ends)


def test_a_change_moves_only_the_chunks_near_it(tmp_path: Path) -> None:
    data = random.Random(3).randbytes(8 << 20)
    before, after = data[:3_000_000], data[3_000_001:]
    for changed in (b"!" + data, before + after, before + b"?" + after):
        (tmp_path / "old").write_bytes(data)
        (tmp_path / "new").write_bytes(changed)
        old = set(chunk_file(tmp_path / "old").chunks)
        new = set(chunk_file(tmp_path / "new").chunks)
        assert len(new - old) <= 3
        assert len(new) > 60


def test_lists_are_written_and_read_and_nothing_else_is_taken_for_one() -> None:
    chunks = ChunkList((Chunk(b"0123456789ab", 5), Chunk(b"ba9876543210", 1 << 19)))
    assert ChunkList.decode(chunks.encode()) == chunks
    assert chunks.total_bytes == 5 + (1 << 19)
    assert ChunkList.decode(ChunkList(()).encode()) == ChunkList(())
    for other in (b"", b"clusterkit", chunks.encode()[:-1], b"x" + chunks.encode()):
        assert ChunkList.decode(other) is None
