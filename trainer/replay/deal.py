"""Moves a replay's episodes to the lanes of another after the number of environments has changed."""

from __future__ import annotations

import numpy as np

from trainer.lanes import LaneLayout
from trainer.replay.lanes import Integers, Lanes


def deal(old: Lanes, new: Lanes, layout: LaneLayout) -> tuple[Integers, Integers]:
    """Fills empty lanes with the whole episodes of other lanes of the same tasks.

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
    """The rows of a task's whole episodes, the newest first."""
    found = []
    for lane in range(task * lanes.per_task, (task + 1) * lanes.per_task):
        last = int(lanes.count[lane]) // steps
        oldest = max(int(lanes.first[lane]), last * steps - int(lanes.capacity[lane]))
        first = -(-oldest // steps)
        for age, episode in enumerate(range(last - 1, first - 1, -1)):
            found.append((age, lanes.places(lane, episode * (steps + 1), (episode + 1) * (steps + 1))))
    return [rows for _, rows in sorted(found, key=lambda each: each[0])]
