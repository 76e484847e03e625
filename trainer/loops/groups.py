"""The learners of several runs in one process, which take their steps together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainer.loops.course import Guarded
from trainer.loops.learner import Learner
from trainer.loops.learner_group import LearnerGroup
from trainer.loops.rollout_group import RolloutGroup
from trainer.loops.rollout_learner import RolloutLearner
from trainer.streams import Stream


class SeedGroup(Protocol):
    """What takes the steps of several learners.

    What a learner finds in itself afterwards, and what its stream has been drawn from, is the same as if it
    had taken the step alone. What is not finite in one touches no other. A learner may be put into another
    group at any time, which is then the one it belongs to.
    """

    def do(self, step: str, who: Sequence[int]) -> None:
        """Takes a step of some learners.

        Args:
            step: the same for all of them, see `trainer.loops.course`.
            who: their numbers, ascending, of those that the group was made with.

        Raises:
            TrainerError: the device's memory is too small. None of these learners can go on.
        """

    def leave(self, number: int) -> None:
        """Says that a learner is never named again: its run has ended, or goes on with another learner.

        It stays whole by itself: what it has learnt is still to be read.
        """


class OneByOne:
    """Learners that take their steps one after the other, each as if it were alone.

    Args:
        learners: of as many runs.
        streams: of the same runs.
    """

    def __init__(self, learners: Sequence[Guarded], streams: Sequence[Stream]) -> None:
        self._learners: list[Guarded | None] = list(learners)
        self._streams = list(streams)

    def do(self, step: str, who: Sequence[int]) -> None:
        """Takes a step of some learners, see `SeedGroup`."""
        for number in who:
            learner = self._learners[number]
            assert learner is not None
            with self._streams[number]:
                learner.do(step)

    def leave(self, number: int) -> None:
        """Forgets a learner."""
        self._learners[number] = None


def make_group(learners: Sequence[Guarded], streams: Sequence[Stream]) -> SeedGroup:
    """Returns what takes the steps of learners of one recipe the fastest, with all else the same."""
    on_policy = [learner for learner in learners if isinstance(learner, RolloutLearner)]
    if 1 < len(on_policy) == len(learners):
        if RolloutGroup.fit(on_policy):
            return RolloutGroup(on_policy)
        each = all(learner.agent.joins for learner in on_policy)
        why = "runs that differ in more than the seed" if each else "runs of multi-task PPO"
        for learner in on_policy:
            learner.slower = f"{why} learn one after the other, not at once"
    off_policy = [learner for learner in learners if isinstance(learner, Learner)]
    if len(off_policy) == len(learners) > 1 and off_policy[0].device.type == "cuda":
        return LearnerGroup(off_policy, streams)
    return OneByOne(learners, streams)
