"""Reads the metrics.jsonl of runs from their cluster as the files grow, each byte once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from clusterkit.results.metrics import LONGEST_LINE, NO_LINE_BYTES
from clusterkit.runs.pieces import Piece, read_pieces
from clusterkit.transport.base import Transport

_PIECE_BYTES = 1 << 22
"""Most bytes of a file that are read in one round trip."""


class MetricsReader:
    """Takes in one run's metrics, piece by piece."""

    def __init__(self, run_dir: str, add: Callable[[Iterable[bytes]], None]) -> None:
        """Begins at the beginning.

        Args:
            run_dir: on the cluster.
            add: called with whole lines.
        """
        self._path, self._add = f"{run_dir}/metrics.jsonl", add
        self._offset = 0
        self._rest = b""
        self._without_end = 0
        """Bytes read since the last newline."""

    @property
    def piece(self) -> Piece | None:
        """The piece to read next; None if the file is none of clusterkit's."""
        wanted = self._without_end < NO_LINE_BYTES
        return Piece(self._path, self._offset, most=_PIECE_BYTES) if wanted else None

    def feed(self, data: bytes) -> None:
        """Takes in the next bytes of the file."""
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._add(lines)
        self._without_end = len(self._rest) if lines else self._without_end + len(data)
        if len(self._rest) > LONGEST_LINE:
            self._rest = self._rest[:1]  # too long for a row: skip to the end of the line


def read_metrics(transport: Transport, readers: Sequence[MetricsReader]) -> None:
    """Reads what was appended to the metrics of runs, in one round trip unless a file has grown by much.

    Raises:
        TransportError: the connection failed.
    """
    while readers:
        wanted = [(reader, piece) for reader in readers if (piece := reader.piece) is not None]
        read = [0] * len(wanted)
        for chunk in read_pieces(transport, [piece for _, piece in wanted]):
            wanted[chunk.number][0].feed(chunk.data)
            read[chunk.number] += len(chunk.data)
        readers = [reader for (reader, _), size in zip(wanted, read, strict=True) if size == _PIECE_BYTES]
