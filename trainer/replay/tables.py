"""Tables that map a transition's rank in its task to its row, for both kinds of draw."""

from __future__ import annotations

import numpy as np

from trainer.lanes import LaneLayout
from trainer.replay.lanes import Integers, Lanes


class Tables:
    """What follows from the lanes' counts; a few numbers a lane, and one a slot.

    The transitions that can be drawn have ranks: task after task, in a task lane after lane, in a lane as
    they came. Rank + `shift` of the lane is a number counted from the start of the slot in which the lane's
    oldest transition lies, and each lane has a stretch of such numbers of its own. A number divided by the
    length of an episode tells the slot, and number + `offset` of the slot is the row: also past the ring's
    end, where it begins again.

    Attributes:
        per_task: lanes of a task.
        full: whether each lane holds as much as may be drawn from it, and will from now on.
        sizes: transitions that can be drawn of each task.
        begin: the rank of each lane's first transition.
        shift: see above, for each lane.
        offset: see above, for each slot.
    """

    def __init__(self, layout: LaneLayout, lanes: Lanes) -> None:
        self._lanes = lanes
        self._steps = layout.episode_steps
        self._slots: Integers = lanes.ring // self._steps
        self._columns: Integers = np.arange(self._slots.max())
        self._lines: Integers = np.arange(lanes.ring.size) * self._columns.size
        self._oldest_slot: Integers = np.full_like(self._slots, -1)
        self.per_task = lanes.per_task
        self.offset: Integers = np.zeros(self._lines.size * self._columns.size, np.int64)
        self.update()

    def update(self) -> bool:
        """Takes over what the lanes hold now; returns whether `offset` has changed."""
        lanes = self._lanes
        self._held = lanes.held
        self.full = bool((self._held == lanes.capacity).all())
        self.sizes: Integers = self._held.reshape(-1, lanes.per_task).sum(1)
        self.begin: Integers = np.cumsum(self._held) - self._held
        return self._follow()

    def advance(self) -> bool:
        """The same after a vector step has been added, which changes little."""
        return self._follow() if self.full else self.update()

    def _follow(self) -> bool:
        lanes, steps = self._lanes, self._steps
        slot, phase = np.divmod(lanes.count - self._held, steps)
        self.shift: Integers = phase + self._lines * steps - self.begin
        if np.array_equal(slot, self._oldest_slot):
            return False
        self._oldest_slot = slot
        row = (slot[:, None] + self._columns) % self._slots[:, None] * (steps + 1)
        number = (self._lines[:, None] + self._columns) * steps
        self.offset[:] = (lanes.base[:, None] + row - number).ravel()
        return True
