"""How a replay's capacity is divided into lanes: the laptop computes with it what a run will need.

A lane holds the transitions of one task that come from one environment: each task has one lane for each of
the `num_envs // num_tasks` environments it owns, and one more, if any environments are left over, for those
that move from task to task. A lane is a ring of slots, each of which takes one whole episode: a row a step,
`observation | action | reward`, and a last one with the final observation. The next observation of a step is
the row after it, so nothing is stored twice.

Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

_FLOAT = 4


@dataclass(frozen=True)
class LaneLayout:
    """The shape of a replay.

    Attributes:
        num_tasks: tasks.
        num_envs: environments that fill it.
        capacity: transitions over all tasks; each task has its equal share.
        batch_size: transitions in a batch over all tasks.
        episode_steps: length of every episode in steps.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
    """

    num_tasks: int
    num_envs: int
    capacity: int
    batch_size: int
    episode_steps: int
    observation_dim: int
    action_dim: int

    @property
    def row_width(self) -> int:
        """Numbers in a row."""
        return self.observation_dim + self.action_dim + 1

    @property
    def window_width(self) -> int:
        """Numbers in a row and the observation in the row after it: a transition."""
        return self.row_width + self.observation_dim

    @property
    def lane_capacities(self) -> tuple[int, ...]:
        """Transitions in each lane of one task, in proportion to what it receives.

        The environments left over serve all tasks in turn, so their lane receives `spare / num_tasks` of what
        the lane of an environment of the task's own does. The sum is the task's share, to the transition.
        """
        share = self.capacity // self.num_tasks
        own, spare = divmod(self.num_envs, self.num_tasks)
        ends = [share * self.num_tasks * lane // self.num_envs for lane in range(own + 1)]
        if spare:
            ends.append(share)
        return tuple(end - begin for begin, end in pairwise(ends))

    @property
    def lane_slots(self) -> tuple[int, ...]:
        """Slots in each lane of one task: enough for its transitions beside one that is being written."""
        return tuple(-(-capacity // self.episode_steps) + 1 for capacity in self.lane_capacities)

    @property
    def rows(self) -> int:
        """Rows over all tasks."""
        return self.num_tasks * sum(self.lane_slots) * (self.episode_steps + 1)

    @property
    def rotations(self) -> int:
        """Batches after which each task has had its turn in what does not divide evenly over the tasks."""
        return self.num_tasks // math.gcd(self.num_tasks, self.batch_size)

    @property
    def nbytes(self) -> int:
        """Bytes of a replay: its rows and one batch."""
        return (self.rows * self.row_width + self.batch_size * self.window_width) * _FLOAT


@dataclass(frozen=True)
class Ring:
    """The shape of a replay of episodes of any length: whole transitions, each in a row of its own.

    Attributes:
        capacity: transitions.
        batch_size: transitions in a batch.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
    """

    capacity: int
    batch_size: int
    observation_dim: int
    action_dim: int

    @property
    def widths(self) -> tuple[int, int, int, int, int]:
        """Numbers in a row: observation, action, reward, next observation, and whether anything follows."""
        return self.observation_dim, self.action_dim, 1, self.observation_dim, 1

    @property
    def nbytes(self) -> int:
        """Bytes of a replay: its rows and one batch."""
        return (self.capacity + self.batch_size) * sum(self.widths) * _FLOAT
