"""Parts of many files come in one command, whole, whatever is in them and however often the line breaks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import TransportError
from clusterkit.runs.pieces import Piece, read_pieces
from clusterkit.transport.faults import LostError
from clusterkit.transport.local import LocalTransport


class Breaking(LocalTransport):
    """Hands its output on in small parts, and breaks after some of them."""

    def __init__(self, parts: int, size: int) -> None:
        super().__init__()
        self.calls, self._parts, self._size = 0, parts, size

    @contextmanager
    def talk(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.calls += 1
        with super().talk(*args, **options) as talking:
            whole = talking.output

            def output() -> Iterator[bytes]:
                number = 0
                for data in whole():
                    for begin in range(0, len(data), self._size):
                        if number == self._parts:
                            raise LostError("the line is dead")
                        number += 1
                        yield data[begin : begin + self._size]

            talking.output = output
            yield talking


def joined(transport: LocalTransport, pieces: list[Piece]) -> list[bytes]:
    """What came of each file; offsets must agree with it."""
    found = [b""] * len(pieces)
    order = []
    for chunk in read_pieces(transport, pieces):
        found[chunk.number] += chunk.data
        order.append(chunk.number)
    assert order == sorted(order)
    assert {*order} == {*range(len(pieces))}
    return found


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    contents = [b"", b"one\n", b"\n0 0\n\nend\n", b"no end", bytes(range(256)) * 40, b"\n" * 9]
    paths = [tmp_path / f"a file {number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [*paths, tmp_path / "nothing", tmp_path]


def test_each_file_comes_whole_in_one_command(files: list[Path]) -> None:
    transport = Breaking(-1, 1 << 20)
    wanted = [path.read_bytes() if path.is_file() else b"" for path in files]
    assert joined(transport, [Piece(str(path)) for path in files]) == wanted
    assert transport.calls == 1


def test_the_last_lines_an_offset_and_the_most_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)))
    whole = log.read_bytes()
    pieces = [Piece(str(log), lines=2), Piece(str(log), 7, most=6), Piece(str(log), len(whole) + 5)]
    assert joined(LocalTransport(), pieces) == [b"line 99998\nline 99999\n", whole[7:13], b""]
    assert joined(LocalTransport(), [Piece(str(log), lines=0), Piece(str(log), most=3)]) == [b"", b"lin"]


def test_a_broken_line_costs_and_doubles_nothing(files: list[Path]) -> None:
    dice = random.Random(1)
    wanted = [path.read_bytes() if path.is_file() else b"" for path in files]
    for _ in range(6):
        transport = Breaking(dice.randrange(3, 40), dice.randrange(60, 900))
        assert joined(transport, [Piece(str(path)) for path in files]) == wanted
        assert transport.calls >= 1
    with pytest.raises(LostError):
        joined(Breaking(0, 1), [Piece(str(files[1]))])


def test_an_answer_without_its_end_is_an_error(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TransportError):
        joined(LocalTransport(), [Piece(str(files[1]))])
