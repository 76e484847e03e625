"""Reads the log files of runs from their cluster as they grow, each byte once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from clusterkit.errors import RunError
from clusterkit.results.logs.find import choose
from clusterkit.results.logs.run_logs import RunLogs
from clusterkit.results.metrics import METRICS
from clusterkit.runs.pieces import Piece, read_pieces
from clusterkit.transport.base import Transport

_PIECE_BYTES = 1 << 22
"""Most bytes of a file that are read in one round trip."""
_OVERLAP = 64
"""Bytes before the new ones that are read again: where they differ, the file was written anew."""


class GrowingRun:
    """The log files of one run, as far as they were read.

    Args:
        run_dir: on the cluster.
        logs: gets their bytes.
        own: whether the run is of a program of the user's own, whose logs are looked for.
    """

    def __init__(self, run_dir: str, logs: RunLogs, *, own: bool) -> None:
        self.run_dir, self.logs, self.own = run_dir, logs, own
        self._read: dict[str, tuple[int, bytes]] = {METRICS: (0, b"")}
        """Of each file how many bytes were read, and the last of them."""

    def know(self, paths: Iterable[str]) -> None:
        """Learns which files the run has."""
        chosen, _ = choose([METRICS, *paths])
        self._read |= {path: (0, b"") for path in chosen if path not in self._read}

    @property
    def pieces(self) -> dict[str, Piece]:
        """The pieces to read next, by path inside the run."""
        return {
            path: Piece(f"{self.run_dir}/{path}", offset - len(last), most=len(last) + _PIECE_BYTES)
            for path, (offset, last) in self._read.items()
            if not self.logs.closed(path)
        }

    def feed(self, path: str, data: bytes) -> bool:
        """Takes in a piece; returns whether there is more of the file."""
        offset, last = self._read[path]
        if not data.startswith(last):
            self._read[path] = 0, b""
            self.logs.restart(path)
            return True
        new = data[len(last) :]
        self.logs.feed(path, new)
        self._read[path] = offset + len(new), data[-_OVERLAP:]
        return len(new) == _PIECE_BYTES


def read_logs(transport: Transport, runs: Sequence[GrowingRun], *, find: bool) -> None:
    """Reads what was appended to the logs of runs, in one round trip unless a file has grown by much.

    Args:
        transport: to their cluster.
        runs: to read.
        find: whether to look for files that are new, which takes another one.

    Raises:
        TransportError: the connection failed.
    """
    if find:
        _find(transport, [run for run in runs if run.own])
    waiting = [(run, path, piece) for run in runs for path, piece in run.pieces.items()]
    while waiting:
        more = []
        chunks = read_pieces(transport, [piece for _, _, piece in waiting])
        for number, some in groupby(chunks, key=lambda chunk: chunk.number):
            run, path, _ = waiting[number]
            if run.feed(path, b"".join(chunk.data for chunk in some)) and not run.logs.closed(path):
                more.append((run, path, run.pieces[path]))
        waiting = more


def _find(transport: Transport, runs: Sequence[GrowingRun]) -> None:
    from clusterkit.results.pull import list_runs  # imports much that trained runs do not need

    roots: dict[str, dict[str, GrowingRun]] = {}
    for run in runs:
        root, name = posixpath.split(run.run_dir)
        roots.setdefault(root, {})[name] = run
    for root, there in roots.items():
        with suppress(RunError):  # there is no folder of runs yet
            inside: dict[str, list[str]] = {}
            for file in list_runs(transport, root, list(there)).files:
                inside.setdefault(file.run_id, []).append(file.inside)
            for name, paths in inside.items():
                there[name].know(paths)
