"""Part of a replay: some rows of each lane, as stored in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ReplayRows:
    """Rows of all lanes, lane after lane; they are counted from the start of the run.

    Attributes:
        begin: the first row of each lane.
        end: the row after the last of each lane.
        data: float32, contiguous, shape (sum of end - begin, row_width).
    """

    begin: list[int]
    end: list[int]
    data: npt.NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.data.nbytes

    def lanes(self) -> Iterator[tuple[int, int, npt.NDArray[np.float32]]]:
        """Yields each lane's first row, the row after its last, and its data."""
        offset = 0
        for begin, end in zip(self.begin, self.end, strict=True):
            yield begin, end, self.data[offset : offset + end - begin]
            offset += end - begin
