"""A replay small enough to compare row by row: what a store of checkpoints asks of one, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from trainer.replay import ReplayRows


class Ring:
    """Lanes of rows. The newest row of a lane is half written, as that of an episode that goes on.

    Args:
        lanes: streams of rows.
        capacity: rows a lane holds.
        width: numbers in a row.
    """

    def __init__(self, lanes: int = 2, capacity: int = 40, width: int = 6) -> None:
        self._rows = np.zeros((lanes, capacity, width), np.float32)
        self._newest = [0] * lanes
        self._capacity = capacity

    def fill(self, count: int, seed: int = 0) -> None:
        """Adds rows to each lane; lane 1 takes two of every three. Their content follows from all numbers."""
        for _ in range(count):
            for lane, newest in enumerate(self._newest):
                if lane == 1 and newest % 3 == 2 and self._newest[0] % 2:
                    continue
                row = np.random.default_rng((seed, lane, newest)).random(self._rows.shape[2])
                self._rows[lane, newest % self._capacity] = row
                self._newest[lane] += 1
                self._rows[lane, (newest + 1) % self._capacity] = -1.0

    @property
    def content(self) -> list[Any]:
        """All that a restored one must hold."""
        rows = [
            [self._rows[lane, number % self._capacity].tolist() for number in range(oldest, newest + 1)]
            for lane, (oldest, newest) in enumerate(zip(self.oldest(), self._newest, strict=True))
        ]
        return [list(self._newest), rows]

    def position(self) -> list[int]:
        return list(self._newest)

    def oldest(self) -> list[int]:
        return [max(0, newest + 1 - self._capacity) for newest in self._newest]

    def rows_since(self, mark: Sequence[int] | None) -> ReplayRows:
        begin = [max(pair) for pair in zip(mark or [0] * len(self._newest), self.oldest(), strict=True)]
        end = [newest + 1 for newest in self._newest]
        numbers = [np.arange(first, last) % self._capacity for first, last in zip(begin, end, strict=True)]
        data = np.concatenate([self._rows[lane, places] for lane, places in enumerate(numbers)])
        return ReplayRows(begin, end, data)

    def put(self, rows: ReplayRows) -> None:
        row = 0
        for lane, (begin, end) in enumerate(zip(rows.begin, rows.end, strict=True)):
            for number in range(begin, end):
                if number >= self.oldest()[lane]:
                    self._rows[lane, number % self._capacity] = rows.data[row]
                row += 1

    def state_dict(self) -> dict[str, Any]:
        return {"newest": torch.tensor(self._newest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._newest = state["newest"].tolist()
