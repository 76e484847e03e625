"""The recent speed of a run, from which the time left follows. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 30.0
"""The window of the rate."""
ENOUGH_SECONDS = 3.0
"""Shorter windows say little and give no rate."""
_MARK_SECONDS = 1.0
"""One mark a second is enough and keeps the window small however often `update` is called."""


class RecentRate:
    """Environment steps a second over the last `WINDOW_SECONDS`.

    What comes before the first step is building environments, and what comes before the first update is
    collecting without learning: neither says how fast the rest will be, so both are left out.

    Args:
        step: where the attempt starts.
    """

    def __init__(self, step: int) -> None:
        self._begin = step
        self._phase = ""
        self._marks: deque[tuple[float, int]] = deque()

    def update(self, now: float, step: int, phase: str) -> None:
        """Records the run's position.

        Args:
            now: monotonic seconds.
            step: environment steps made.
            phase: as heartbeat.json has it.
        """
        learns = phase != "warmup" and self._phase == "warmup"
        self._phase = phase
        if not self._marks:
            if step != self._begin:
                self._marks.append((now, step))
        elif learns or step < self._marks[-1][1]:  # or it went back to a checkpoint
            self._marks = deque([(now, step)])
        elif now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, step))
            while now - self._marks[0][0] > WINDOW_SECONDS and len(self._marks) > 2:
                self._marks.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """The rate; None until there is enough to tell."""
        if len(self._marks) < 2:
            return None
        (since, first), (until, last) = self._marks[0], self._marks[-1]
        return (last - first) / (until - since) if until - since >= ENOUGH_SECONDS else None
