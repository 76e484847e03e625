"""All ranks stop at the same vector step, whichever of them is told to or fails."""

from __future__ import annotations

from trainer.errors import WorkerError
from trainer.parallel import Ranks
from trainer.preemption import StopSignals

_WORKER_LOST = 1000
"""Told to the other ranks in the place of a signal's number."""


class Agreement:
    """Asks all ranks, once a vector step, whether one has received a signal or lost a worker.

    Args:
        ranks: all of them.
        stop: what this one has received; takes over what another has.

    Attributes:
        stopping: whether the run is to stop, the same on every rank.
    """

    def __init__(self, ranks: Ranks, stop: StopSignals) -> None:
        self._ranks = ranks
        self._stop = stop
        self.stopping = False

    def reach(self) -> None:
        """Waits for all ranks.

        Raises:
            WorkerError: another one has lost an environment worker.
        """
        number = self._ranks.most(int(self._stop.received or 0) if self._stop else 0)
        if number == _WORKER_LOST:
            raise WorkerError("another rank has lost an environment worker; its own message says how")
        if number:
            self._stop.take(number)
            self.stopping = True

    def lost(self) -> None:
        """Tells the others, who wait in `reach`, that this one has lost a worker."""
        self._ranks.most(_WORKER_LOST)
