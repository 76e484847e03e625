"""Tracks the position of each transition in the rings, in integers without tensors.

The transitions of a lane are numbered in the order of the run. All episodes have the same length T; only the
first of a lane may begin in its middle, and is then numbered so that it too ends at a multiple of T. So
transition n lies in row n // T * (T + 1) + n % T of its lane, modulo the rows of the lane's ring.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.recipe.lanes import LaneLayout

Integers = npt.NDArray[np.int64]


class Lanes:
    """The rings of a layout, lane by lane: those of task 0, then those of task 1, and so on.

    Attributes:
        per_task: lanes of a task.
        capacity: transitions that may be drawn from each lane.
        ring: transitions each lane has room for.
        base: the first row of each lane among all rows.
        first: the number of each lane's first transition.
        count: the number that each lane's next transition will have.
    """

    def __init__(self, layout: LaneLayout) -> None:
        self._steps = layout.episode_steps
        own = layout.num_envs // layout.num_tasks
        capacities, slots = layout.lane_capacities, layout.lane_slots
        self.per_task = len(capacities)
        self.capacity: Integers = np.tile(np.array(capacities, np.int64), layout.num_tasks)
        self.ring: Integers = np.tile(np.array(slots, np.int64), layout.num_tasks) * self._steps
        self._ring_rows: Integers = self.ring + self.ring // self._steps
        self.base: Integers = np.cumsum(self._ring_rows) - self._ring_rows
        self.first: Integers = np.zeros(self.base.size, np.int64)
        self.count: Integers = np.zeros(self.base.size, np.int64)
        self._copy = np.minimum(np.arange(layout.num_envs) // layout.num_tasks, own)
        # the steps that are left of each episode next time, if all go on
        self._expected: npt.NDArray[np.integer[Any]] = np.zeros(layout.num_envs, np.int64)
        # which environments' transitions were stored last, in which lanes and where
        self._stored: npt.NDArray[np.bool_] = np.zeros(layout.num_envs, np.bool_)
        self._lane: Integers = np.zeros(0, np.int64)
        self._place: Integers = np.zeros(0, np.int64)

    @property
    def held(self) -> Integers:
        """How many transitions can be drawn from each lane: its newest."""
        held: Integers = np.minimum(self.count - self.first, self.capacity)
        return held

    @property
    def oldest(self) -> Integers:
        """The oldest row that each lane needs, also if its running episode should be dropped."""
        return self._row(np.maximum(self.first, self.count // self._steps * self._steps - self.capacity))

    @property
    def newest(self) -> Integers:
        """The row of each lane's newest observation; where the lane is empty, of its first."""
        return self.end - (self.count > self.first)

    @property
    def end(self) -> Integers:
        """The row after each lane's newest observation."""
        return np.where(self.count > self.first, self._row(self.count - 1) + 2, self._row(self.count))

    def claim(
        self, task: npt.NDArray[np.integer[Any]], remaining: npt.NDArray[np.integer[Any]]
    ) -> tuple[npt.NDArray[np.bool_], Integers]:
        """Numbers one transition per environment.

        A lane that holds something takes no episode that begins in the middle; none of it is stored.

        Args:
            task: what each environment plays.
            remaining: steps left of each running episode, this one included.

        Returns:
            Which environments' transitions are stored, shape (num_envs,), and at which rows among all rows,
            one for each that is.
        """
        if np.array_equal(remaining, self._expected):
            self._place = self._place + 1  # every episode goes on
        else:
            self._claim(task, remaining)
        self._expected = remaining - 1
        self.count[self._lane] += 1
        return self._stored, self._place

    def _claim(self, task: npt.NDArray[np.integer[Any]], remaining: npt.NDArray[np.integer[Any]]) -> None:
        lane = task * self.per_task + self._copy
        assert np.unique(lane).size == lane.size, "two moving environments play the same task"
        position = self._steps - remaining
        number = self.count[lane]
        empty = number == self.first[lane]
        number = np.where(empty, number // self._steps * self._steps + position, number)
        self.first[lane[empty]] = self.count[lane[empty]] = number[empty]
        phase = number % self._steps
        self._stored = phase == position
        assert self._stored[phase > 0].all(), "an environment left an episode in its middle; cut() first"
        self._lane = lane[self._stored].astype(np.int64)
        place = number[self._stored] % self.ring[self._lane]
        self._place = self.base[self._lane] + self._row(place)

    def places(self, lane: int, begin: int, end: int) -> Integers:
        """Returns where rows `begin` to `end` of a lane lie among all rows."""
        places: Integers = self.base[lane] + np.arange(begin, end) % self._ring_rows[lane]
        return places

    def transitions(self) -> Integers:
        """Returns the row of each transition that can be drawn, among all rows."""
        rows = []
        for lane, (held, count) in enumerate(zip(self.held, self.count, strict=True)):
            place = np.arange(count - held, count) % self.ring[lane]
            rows.append(self.base[lane] + self._row(place))
        return np.concatenate(rows)

    def forget(self) -> None:
        """Makes the next `claim` look at every lane, for the counts have been set."""
        self._expected = np.zeros_like(self._expected)

    def cut(self) -> None:
        """Drops the running episodes.

        The count goes on a whole ring further, so no row that is written from now on, nor one that stays,
        has the number of a row that was dropped; for a checkpoint all of them are new.
        """
        self.count = self.count // self._steps * self._steps + self.ring
        self.first = np.minimum(self.first + self.ring, self.count)
        self.forget()

    def _row(self, number: Integers) -> Integers:
        """The row of a transition in its lane, or in its ring if the number is one in the ring."""
        return number + number // self._steps


def deal_episodes(old: Lanes, new: Lanes, layout: LaneLayout) -> tuple[Integers, Integers]:
    """Fills empty lanes with the whole episodes of other lanes of the same tasks: of another number of them.

    The newest come first; each goes to the lane that is then the least full for its size.

    Args:
        old: lanes without running episodes.
        new: the lanes to fill; they number what they receive.
        layout: that of the new lanes.

    Returns:
        Which of the old rows go to which of the new.
    """
    steps = layout.episode_steps
    source, target = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for task in range(layout.num_tasks):
        receivers = range(task * new.per_task, (task + 1) * new.per_task)
        received: dict[int, list[Integers]] = {lane: [] for lane in receivers}
        for episode in _episodes(old, task, steps):
            lane = min(receivers, key=lambda lane: (len(received[lane]) + 1) / (new.capacity[lane] or 0.1))
            if len(received[lane]) + 1 < new.ring[lane] // steps:
                received[lane].append(episode)
        for lane, episodes in received.items():
            new.count[lane] = len(episodes) * steps
            source += reversed(episodes)
            target.append(new.places(lane, 0, len(episodes) * (steps + 1)))
    return np.concatenate(source), np.concatenate(target)


def _episodes(lanes: Lanes, task: int, steps: int) -> list[Integers]:
    """Returns the rows of a task's whole episodes, the newest first."""
    aged = []
    for lane in range(task * lanes.per_task, (task + 1) * lanes.per_task):
        last = int(lanes.count[lane]) // steps
        oldest = max(int(lanes.first[lane]), last * steps - int(lanes.capacity[lane]))
        first = -(-oldest // steps)
        for age, episode in enumerate(range(last - 1, first - 1, -1)):
            aged.append((age, lanes.places(lane, episode * (steps + 1), (episode + 1) * (steps + 1))))
    return [rows for _, rows in sorted(aged, key=lambda pair: pair[0])]
