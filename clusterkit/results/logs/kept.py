"""Keeps the rows of a run's log files in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clusterkit.results.metrics import KINDS, LOG, MetricRow

BUDGET = 24 << 20
"""Bytes up to which every row is kept; Python objects take several times as much."""
_LEAST, _EACH = 100, 16
"""Bytes for which a row, and each of its numbers, counts at least."""
_SORTS = 200
"""Most sorts of rows of a run."""

Sort = tuple[str, str, tuple[str, ...]]
"""Source, kind, and of rows that are not of metrics.jsonl the names."""


class KeptRows:
    """The rows of a run, by source in the order in which they came.

    Every row is kept up to `budget` bytes. Beyond that, the sort of row that takes the most bytes keeps every
    second row, then every fourth, and so on, and always the last. Evaluations stay complete as long as they
    take less than the training rows.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._count = self._bytes = 0
        self._sorts: dict[Sort, _Sort] = {}

    def add(self, source: str, row: MetricRow, size: int) -> None:
        """Adds the next row of a source, which takes so many bytes there."""
        key = source, row.kind, tuple(row.values) if row.kind == LOG else ()
        if key not in self._sorts and len(self._sorts) >= _SORTS:
            if row.kind not in KINDS:
                return
            key = source, row.kind, ()
        sort = self._sorts.setdefault(key, _Sort())
        self._count += 1
        self._bytes += sort.add(_Place(self._count, max(size, _LEAST, _EACH * len(row.values)), row))
        while self._bytes > self._budget:
            most = max(self._sorts.values(), key=lambda candidate: candidate.bytes)
            if not (freed := most.thin()):
                break
            self._bytes -= freed

    def drop(self, source: str) -> None:
        """Forgets the rows of a source."""
        for key in [key for key in self._sorts if key[0] == source]:
            self._bytes -= self._sorts.pop(key).bytes

    def rows(self, source: str) -> list[MetricRow]:
        """Returns the kept rows of a source."""
        places = [place for key, sort in self._sorts.items() if key[0] == source for place in sort.kept()]
        return [place.row for place in sorted(places, key=lambda place: place.number)]


@dataclass(frozen=True, slots=True)
class _Place:
    """A row with its number and the bytes for which it counts."""

    number: int
    bytes: int
    row: MetricRow


class _Sort:
    """The rows of one sort: every `stride`-th, and the last."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stride, self._seen = 1, 0
        self._places: list[_Place] = []
        self._last: _Place | None = None

    def add(self, place: _Place) -> int:
        """Adds the next row; returns the increase in kept bytes."""
        kept = self._seen % self._stride == 0
        self._seen += 1
        self._last = place
        if kept:
            self._places.append(place)
            self.bytes += place.bytes
        return place.bytes if kept else 0

    def thin(self) -> int:
        """Drops every second row; returns the bytes freed."""
        if len(self._places) < 2:
            return 0
        self._stride *= 2
        gone = sum(place.bytes for place in self._places[1::2])
        del self._places[1::2]
        self.bytes -= gone
        return gone

    def kept(self) -> Iterator[_Place]:
        yield from self._places
        if self._last is not None and self._last is not self._places[-1]:
            yield self._last
